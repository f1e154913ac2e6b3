"""``status``: how a crawl is doing, and what holds it back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from scrapy_fleet.errors import StoreAway
from scrapy_fleet.model import Snapshot, WorkerView
from scrapy_fleet.ops.hosts import slots_table
from scrapy_fleet.ops.limits import in_short, limit_of, may_be_limited
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, duration, number, on_terminal, paint, plain, print_json, table

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

HOSTS = 5
"""How many hosts ``status`` shows."""
JUDGED = 100
"""How many hosts it looks at to tell what holds the crawl back."""
LOOKS = 4
LOOK_AGAIN = 0.05
"""How often it looks, and after how many seconds again, where a host is at its limit now and then."""
COLOURS = {
    "new": "dim",
    "seeding": "green",
    "running": "green",
    "paused": "yellow",
    "stopping": "yellow",
    "stopped": "yellow",
    "finished": "cyan",
}


def status(place: Place, crawl: str | None, *, watch: bool, as_json: bool) -> int:
    if watch:
        place, crawl = place.resolve(crawl)
        with closing(place.open(crawl)) as store:
            return _watch(store, as_json)
    found = place.crawls() if crawl is None and place.crawl is None else {}
    if len(found) < 2:
        place, name = place.resolve(crawl)
        found = {name: place}
    seen: list[tuple[str, Snapshot]] = []
    for name, here in found.items():
        with closing(here.open(name)) as store:
            seen.append((store.url, _closer_look(store) if len(found) == 1 else look(store)))
    if as_json:
        print_json({"crawls": [_as_data(url, snapshot) for url, snapshot in seen]})
    elif len(seen) == 1:
        print(in_full(*seen[0]))
    else:
        print(_in_lines([snapshot for _, snapshot in seen]))
    return 0


def look(store: Store, slots: int = JUDGED) -> Snapshot:
    """A snapshot whose status also says that all workers have fallen silent, or what they are told."""
    snapshot = store.snapshot(slots)
    if snapshot.status not in ("running", "seeding"):
        return snapshot
    if all(w.deadline_in < 0 for w in snapshot.workers):
        return replace(snapshot, status="stopped")
    if snapshot.mode != "run":
        return replace(snapshot, status="paused" if snapshot.mode == "pause" else "stopping")
    return snapshot


def _closer_look(store: Store) -> Snapshot:
    for _ in range(LOOKS - 1):
        snapshot = look(store)
        if limit_of(snapshot) is not None or not may_be_limited(snapshot):
            return snapshot
        time.sleep(LOOK_AGAIN)
    return look(store)


def _as_data(url: str, snapshot: Snapshot, rate: float | None = None) -> dict[str, Any]:
    limit = msgspec.to_builtins(limit_of(snapshot))
    shown = replace(snapshot, slots=snapshot.slots[:HOSTS])
    return {"url": url, **msgspec.to_builtins(shown), "limit": limit, "rate": rate}


# One crawl, in full


def in_full(url: str, snapshot: Snapshot, rate: float | None = None) -> str:
    counts = snapshot.counts
    pace = "" if rate is None else f"    rate {rate:,.1f}/s"
    word = paint(snapshot.status, COLOURS[snapshot.status])
    terms = [f"{number(getattr(counts, name))} {name}" for name in ("waiting", "leased", "done", "dead")]
    if counts.dead:
        terms[-1] = paint(terms[-1], "red")
    parts = [
        f"{paint(plain(snapshot.crawl), 'bold')}  {word}  {paint(f'run {snapshot.run}, {url}', 'dim')}",
        f"  accepted {number(counts.accepted)} = {' + '.join(terms)}",
        f"  seen {number(snapshot.seen)}    items {number(snapshot.items)}{pace}",
    ]
    if snapshot.workers:
        parts += ["", workers_table(snapshot.workers, indent=2)]
    if snapshot.slots:
        shown = snapshot.slots[:HOSTS]
        parts += ["", slots_table(shown, indent=2)]
        if (more := snapshot.slot_count - len(shown)) > 0:
            parts.append(paint(f"  and {count(more, 'host')} more", "dim"))
    if (limit := limit_of(snapshot)) is not None:
        parts += ["", f"  {limit.says}"]
    if snapshot.status == "stopped":
        parts += ["", f"  {_why_stopped(snapshot)}"]
    if snapshot.mode == "pause" and snapshot.status != "finished":
        parts += ["", f"  It is paused. Go on: scrapy fleet resume {plain(snapshot.crawl)}"]
    return "\n".join(parts)


def _why_stopped(snapshot: Snapshot) -> str:
    silent = "All its workers have fallen silent" if snapshot.workers else "It has no worker"
    return f"{silent}. The command that started it resumes it; nothing is lost."


def workers_table(workers: tuple[WorkerView, ...], *, indent: int = 0) -> str:
    rows = [
        (
            worker.id,
            duration(worker.age),
            number(worker.leased),
            f"in {duration(worker.deadline_in)}"
            if worker.deadline_in >= 0
            else f"silent, overdue by {duration(-worker.deadline_in)}",
        )
        for worker in workers
    ]
    return table(("worker", ">age", ">held", "deadline"), rows, indent=indent)


def _in_lines(snapshots: list[Snapshot]) -> str:
    rows = [
        (
            s.crawl,
            s.status,
            *(number(n) for n in (s.counts.waiting, s.counts.leased, s.counts.done, s.counts.dead)),
            number(s.items),
            number(sum(worker.deadline_in >= 0 for worker in s.workers)),
        )
        for s in snapshots
    ]
    return table(("crawl", "status", ">waiting", ">leased", ">done", ">dead", ">items", ">workers"), rows)


# Watching


def _watch(store: Store, as_json: bool) -> int:
    """Show the crawl every second until it has finished."""
    rich = None if as_json or not on_terminal() else _live()
    if rich is not None:
        live, from_ansi = rich
        with live:
            for snapshot, rate in _each_second(store):
                live.update(from_ansi(in_full(store.url, snapshot, rate)), refresh=True)
        return 0
    for snapshot, rate in _each_second(store):
        if as_json:
            print_json(_as_data(store.url, snapshot, rate))
        else:
            print(_line(snapshot, rate), flush=True)
    return 0


def _live() -> tuple[Any, Any] | None:
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return None
    return Live(auto_refresh=False), Text.from_ansi


def _each_second(store: Store) -> Iterator[tuple[Snapshot, float | None]]:
    """Snapshots, with the requests done per second over the last few of them."""
    past: deque[tuple[float, int, int]] = deque(maxlen=6)
    while True:
        try:
            snapshot = look(store)
        except StoreAway:
            time.sleep(1)
            continue
        now, rate = time.monotonic(), None
        while past and past[0][1] != snapshot.run:
            past.popleft()
        if past:
            began, _, done = past[0]
            rate = max(0, snapshot.counts.done - done) / (now - began)
        past.append((now, snapshot.run, snapshot.counts.done))
        yield snapshot, rate
        if snapshot.status == "finished":
            return
        time.sleep(1)


def _line(snapshot: Snapshot, rate: float | None) -> str:
    names = ("waiting", "leased", "done", "dead")
    parts = [f"{name} {number(getattr(snapshot.counts, name))}" for name in names]
    parts += [f"items {number(snapshot.items)}"] + ([] if rate is None else [f"{rate:,.1f}/s"])
    if (limit := limit_of(snapshot)) is not None:
        parts.append(in_short(limit))
    return f"{time.strftime('%H:%M:%S')}  {plain(snapshot.crawl)}  {snapshot.status}  {'  '.join(parts)}"
