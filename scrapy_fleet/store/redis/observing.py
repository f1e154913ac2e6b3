"""What observers are told, from what the scripts answer."""

from __future__ import annotations

from typing import Any

from scrapy_fleet.model import Counts, Mode, SlotView, Snapshot, Status, Worker, WorkerView
from scrapy_fleet.store.redis.packing import text


def read_workers(found: list[list[Any]]) -> tuple[Worker, ...]:
    """Workers in the order in which they came."""
    found.sort(key=lambda facts: int(facts[1]))
    return tuple(
        Worker(text(id), text(host), int(pid), text(home), text(birth))
        for id, _, host, pid, home, birth in found
    )


def snapshot(crawl: str, answer: list[Any], modes: tuple[Mode, ...]) -> Snapshot:
    if not answer:
        return Snapshot(crawl, 1, "new", Counts(), 0, 0, 0, (), (), {})
    told, run, finished, seeded, counts, seen, items, slot_count, stats, workers, slots, mode, ever = answer
    now = float(told)
    return Snapshot(
        crawl=crawl,
        run=run,
        status=_status(now, finished, seeded, workers) if ever else "new",
        counts=Counts(*counts),
        seen=seen,
        items=items,
        slot_count=slot_count,
        slots=tuple(_slot(facts, now) for facts in slots),
        workers=tuple(_worker(facts, now) for facts in sorted(workers, key=lambda facts: int(facts[3]))),
        stats={text(name): float(value) for name, value in zip(stats[::2], stats[1::2], strict=True)},
        mode=modes[mode],
    )


def _status(now: float, finished: int, seeded: int, workers: list[list[Any]]) -> Status:
    if finished:
        return "finished"
    if all(float(deadline) <= now for _, deadline, *_ in workers):
        return "stopped"
    return "running" if seeded else "seeding"


def _slot(facts: list[Any], now: float) -> SlotView:
    name, waiting, leased, done, concurrency, delay, latency, next_at = facts
    return SlotView(
        name=text(name),
        waiting=waiting,
        leased=leased,
        done=done,
        delay=float(delay),
        concurrency=int(float(concurrency)),
        latency=float(latency) if float(latency) >= 0 else None,
        next_in=max(0.0, float(next_at) - now),
    )


def _worker(facts: list[Any], now: float) -> WorkerView:
    id, deadline, leased, _, host, pid, joined = facts
    return WorkerView(text(id), text(host), int(pid), leased, now - float(joined), float(deadline) - now)
