"""``peek`` and ``dead``: the requests that a crawl holds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

from scrapy_fleet.errors import FleetError, Unreadable
from scrapy_fleet.model import Row
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, number, paint, plain, print_json, table

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

MANY_HOSTS = 1000
"""How many hosts ``peek`` looks at, the busiest first."""

Action = Literal["list", "requeue", "drop"]


def as_data(row: Row) -> dict[str, Any]:
    """An entry with what can be read from its payload."""
    from scrapy_fleet.crawl.codec import describe

    data: dict[str, Any] = {"id": row.id, "host": row.slot, "priority": row.priority, "seed": row.seed}
    data |= {"attempts": row.attempts, "method": None, "url": None, "callback": None, "errback": None}
    try:
        data |= describe(row.payload)
    except Unreadable as error:
        data["unreadable"] = str(error)
    return data


def _request(entry: dict[str, Any]) -> str:
    if "unreadable" in entry:
        return f"({entry['unreadable']})"
    return entry["url"] if entry["method"] == "GET" else f"{entry['method']} {entry['url']}"


def _callback(entry: dict[str, Any]) -> str:
    if "unreadable" in entry:
        return "-"
    # Scrapy calls ``parse`` where a request names nothing, and an empty name means no callback at all.
    return {None: "parse", "": "-"}.get(entry["callback"], str(entry["callback"]))


# What comes next


def in_order(store: Store, limit: int) -> Iterator[Row]:
    """Waiting entries in the order they will be handed out, as far as it does not depend on time.

    Best priority first; hosts whose first entries rank alike take turns.
    """
    slots = [slot for slot in store.snapshot(MANY_HOSTS).slots if slot.waiting]
    heap: list[tuple[int, int, int, Row, Iterator[Row]]] = []
    for turn, slot in enumerate(sorted(slots, key=lambda slot: slot.next_in)):
        rows = iter(store.scan("waiting", slot=slot.name, limit=limit))
        if (first := next(rows, None)) is not None:
            heap.append((_rank(first), 0, turn, first, rows))
    heapq.heapify(heap)
    for served in range(1, limit + 1):
        if not heap:
            return
        _, _, turn, row, rows = heapq.heappop(heap)
        yield row
        if (following := next(rows, None)) is not None:
            heapq.heappush(heap, (_rank(following), served, turn, following, rows))


def _rank(row: Row) -> int:
    return -2 * row.priority + row.seed


def peek(
    place: Place,
    crawl: str | None,
    *,
    host: str | None,
    kind: Literal["waiting", "leased"],
    limit: int,
    as_json: bool,
) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        if kind == "waiting" and host is None:
            rows = list(in_order(store, limit))
        else:
            rows = store.scan(kind, slot=host, limit=limit)
    entries = [{**as_data(row), "worker": row.worker} for row in rows]
    if as_json:
        print_json({"crawl": name, "kind": kind, "entries": entries})
    elif not entries:
        print(f"No {kind} requests{f' of {plain(host)}' if host else ''} in crawl {name!r}.")
    else:
        last = "worker" if kind == "leased" else "callback"
        cells = [
            (
                number(entry["priority"]),
                "seed" if entry["seed"] else "",
                _request(entry),
                (entry["worker"] or "") if kind == "leased" else _callback(entry),
            )
            for entry in entries
        ]
        print(table((">priority", "", "request", last), cells))
    return 0


# What was given up


def dead(
    place: Place,
    crawl: str | None,
    action: Action,
    *,
    ids: tuple[int, ...],
    everything: bool,
    limit: int,
    as_json: bool,
) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        if action == "list":
            return _list_dead(store, name, limit, as_json)
        if missing := sorted(set(ids) - _dead_ids(store)):
            these = ", ".join(map(str, missing))
            raise FleetError(f"Crawl {name!r} has no dead request with the id {these}. Nothing was changed.")
        change = store.requeue if action == "requeue" else store.drop
        changed = change(None if everything else ids)
    if as_json:
        print_json({"crawl": name, "action": action, "count": changed})
    elif action == "requeue":
        print(f"{count(changed, 'request')} of crawl {name!r} will be tried again.")
    else:
        print(f"{count(changed, 'request')} of crawl {name!r} dropped for good; they count as done.")
    return 0


def _dead_ids(store: Store) -> set[int]:
    return {row.id for row in _all_dead(store)}


def _all_dead(store: Store) -> Iterator[Row]:
    after = 0
    while rows := store.scan("dead", after=after, limit=1000):
        yield from rows
        after = rows[-1].id


def _list_dead(store: Store, name: str, limit: int, as_json: bool) -> int:
    rows = store.scan("dead", limit=limit)
    total = store.snapshot(0).counts.dead
    entries = [{**as_data(row), "reason": row.reason} for row in rows]
    if as_json:
        print_json({"crawl": name, "dead": total, "entries": entries})
        return 0
    if not entries:
        print(f"No dead requests in crawl {name!r}.")
        return 0
    for entry in entries:
        print(f"{paint(str(entry['id']), 'bold')}  {plain(_request(entry))}")
        tries = count(entry["attempts"], "crash", "crashes")
        about = paint(f"({tries}, callback {_callback(entry)})", "dim")
        print(f"    {plain(entry['reason'] or 'no reason was kept')} {about}")
    if total > len(entries):
        print(paint(f"and {number(total - len(entries))} more; show them with --limit", "dim"))
    print(paint(f"\nTry again: dead {plain(name)} requeue ID ... (or --all). Forget: drop.", "dim"))
    return 0
