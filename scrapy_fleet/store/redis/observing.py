"""What observers are told, from what the scripts answer."""

from __future__ import annotations

import struct
from typing import Any

from scrapy_fleet import politeness
from scrapy_fleet.model import (
    TASKS,
    UNPACED,
    Counts,
    Mode,
    Plan,
    Rule,
    SlotView,
    Snapshot,
    Status,
    Worker,
    WorkerView,
)
from scrapy_fleet.store.redis.packing import raw, read_manners, read_override, read_policy, text

_TASKS = raw(TASKS)
_numbers = struct.Struct("<dddddddd").unpack


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
    *answer, auto, policy = answer
    told, run, finished, seeded, counts, seen, items, slot_count, stats, workers, slots, mode, ever = answer
    now, plan = float(told), read_policy(auto, policy)
    return Snapshot(
        crawl=crawl,
        run=run,
        status=_status(now, finished, seeded, workers) if ever or counts[0] else "new",
        counts=Counts(*counts),
        seen=seen,
        items=items,
        slot_count=slot_count,
        slots=tuple(_slot(facts, plan, now) for facts in slots),
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


def one_slot(now: bytes, has_auto: int, policy: bytes, facts: list[bytes]) -> SlotView:
    return _slot(facts, read_policy(has_auto, policy), float(now))


def _slot(facts: list[bytes], plan: Plan, now: float) -> SlotView:
    name, numbers, kept, told = facts
    waiting, leased, done, active, concurrency, delay, next_at, latency = _numbers(numbers)
    manners, override = read_manners(kept), read_override(told)
    # Before anybody has joined, there is no rule.
    rule = Rule(delay, int(concurrency)) if concurrency else plan.rule
    if name == _TASKS:
        rule = UNPACED
    known = (manners, plan, rule, override)
    return SlotView(
        name=text(name),
        waiting=int(waiting),
        leased=int(leased),
        done=int(done),
        delay=politeness.delay_of(*known),
        concurrency=politeness.concurrency_of(*known),
        latency=latency if latency >= 0 else None,
        next_in=max(0.0, politeness.due_at(manners, next_at) - now),
        reason=politeness.why_it_waits(
            *known, waiting=int(waiting), active=int(active), next_at=next_at, now=now
        ),
        robots=manners.robots,
        override=override,
    )


def _worker(facts: list[Any], now: float) -> WorkerView:
    id, deadline, leased, _, host, pid, joined = facts
    return WorkerView(text(id), text(host), int(pid), leased, now - float(joined), float(deadline) - now)
