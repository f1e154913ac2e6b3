"""``workers``, ``pause``, ``resume``, ``stop`` and ``clear``: who is in a crawl, and what it is told."""

from __future__ import annotations

from contextlib import closing
from typing import Literal

import msgspec

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Mode, Snapshot
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import agreed, count, number, paint, plain, print_json
from scrapy_fleet.ops.status import look, workers_table

Order = Literal["pause", "resume", "stop"]
MODES: dict[Order, Mode] = {"pause": "pause", "resume": "run", "stop": "stop"}


def workers(place: Place, crawl: str | None, *, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        snapshot = look(store, 0)
    if as_json:
        found = msgspec.to_builtins(snapshot.workers)
        print_json({"crawl": name, "status": snapshot.status, "mode": snapshot.mode, "workers": found})
    elif not snapshot.workers:
        print(f"No worker is in crawl {name!r}.")
    else:
        print(workers_table(snapshot.workers))
    return 0


def control(place: Place, crawl: str | None, order: Order, *, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        store.control(MODES[order])
        snapshot = store.snapshot(0)
    if as_json:
        print_json({"crawl": name, "mode": snapshot.mode, "workers": _alive(snapshot)})
    else:
        print(_answer(plain(name), order, snapshot))
    return 0


def _alive(snapshot: Snapshot) -> int:
    return sum(worker.deadline_in >= 0 for worker in snapshot.workers)


def _answer(name: str, order: Order, snapshot: Snapshot) -> str:
    alive = _alive(snapshot)
    them = f"Its {count(alive, 'worker')}" if alive != 1 else "Its worker"
    if order == "resume":
        who = f"Crawl {name!r} is told to go on."
        return who if alive else f"{who} It has no worker: start one."
    if order == "pause":
        begin = f"{them} will end what is in flight and wait." if alive else "It has no worker now."
        return f"Crawl {name!r} is paused. {begin} Go on: resume {name}"
    if not alive:
        return f"Crawl {name!r} has no worker that could stop."
    ends = "end" if alive != 1 else "ends"
    return (
        f"Crawl {name!r} is told to stop. {them} {ends} what is in flight and leave{'s' * (alive == 1)}. "
        "The command that started it resumes it; nothing is lost."
    )


def clear(place: Place, crawl: str | None, *, sure: bool, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        snapshot = store.snapshot(0)
        if not sure:
            if as_json:
                raise FleetError("Clearing asks first, which --json cannot: add --yes.")
            if not _asked(store.url, snapshot):
                print("Nothing was changed.")
                return 2
        store.clear()
    if as_json:
        print_json({"crawl": name, "cleared": True})
    else:
        print(f"Cleared: crawl {plain(name)!r} is as new.")
    return 0


def _asked(url: str, snapshot: Snapshot) -> bool:
    counts = snapshot.counts
    print(f"Crawl {paint(plain(snapshot.crawl), 'bold')} at {url} has")
    terms = ", ".join(
        f"{number(getattr(counts, name))} {name}" for name in ("waiting", "leased", "done", "dead")
    )
    print(f"  {terms} requests, {number(snapshot.seen)} seen URLs, {number(snapshot.items)} items.")
    return agreed("Forget all of it, for good?")
