"""``items``: what a crawl has found, to be read, followed, exported, or consumed in groups."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from scrapy_fleet.errors import FleetError, StoreAway, Unreadable
from scrapy_fleet.ops.item_output import Output, open_output
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, number, plain, print_json, table

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

AT_ONCE = 500
LOOK_EVERY = 0.5
"""Seconds between two looks for new items."""
TRIM_EVERY = 10.0

T = TypeVar("T")
Items = list[tuple[int, bytes]]


class Wanted(NamedTuple):
    """What of a crawl's items is wanted, and how."""

    follow: bool = False
    format: str = "jsonl"
    fields: tuple[str, ...] = ()
    output: Path | None = None
    group: str | None = None
    consumer: str | None = None
    timeout: float = 60.0
    after: int = 0
    limit: int | None = None
    trim: bool = False
    as_json: bool = False


def items(place: Place, crawl: str | None, wanted: Wanted) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        if wanted.trim and wanted.group is None:
            return _trim(store, name, wanted)
        fields = wanted.fields
        last: int | None = None
        if wanted.format == "csv" and not fields:
            fields, last = _all_fields(store, wanted)
        with open_output(wanted.output, wanted.format, fields, append=_adds(wanted)) as output:
            reading = _taken(store, wanted) if wanted.group is not None else _read(store, wanted, last)
            bad = _write(store, reading, output, wanted)
    if bad:
        what = "cannot be read and was" if bad == 1 else "cannot be read and were"
        print(f"scrapy-fleet: {count(bad, 'item')} {what} left out.", file=sys.stderr)
    return 1 if bad else 0


def _adds(wanted: Wanted) -> bool:
    return wanted.follow or wanted.group is not None


def decoded(data: bytes) -> dict[str, Any]:
    """An item, as it was packed by the pipeline."""
    from scrapy_fleet.crawl.plain import unpack

    item = unpack(data)
    if not isinstance(item, dict):
        raise Unreadable(f"what is stored is no item: it is of type {type(item).__name__}")
    return item


def _write(store: Store, reading: Iterator[Items], output: Output, wanted: Wanted) -> int:
    """Write what comes, and acknowledge what has been written; how many items could not be read."""
    bad = 0
    trimmed = time.monotonic()
    for some in reading:
        for place, data in some:
            try:
                item = decoded(data)
            except Unreadable as error:
                bad += 1
                print(f"scrapy-fleet: item {place} cannot be read: {plain(str(error))}", file=sys.stderr)
                continue
            output.write({"number": place, "item": item} if wanted.as_json else item)
        output.flush()
        if wanted.group is not None:
            numbers = tuple(place for place, _ in some)
            insist(partial(store.ack_items, wanted.group, numbers))
            if wanted.trim and time.monotonic() - trimmed >= TRIM_EVERY:
                insist(store.trim_items)
                trimmed = time.monotonic()
    if wanted.group is not None and wanted.trim:
        insist(store.trim_items)
    return bad


def insist(call: Callable[[], T]) -> T:
    """A server that is away for a while loses nobody's work."""
    pause = 0.1
    while True:
        try:
            return call()
        except StoreAway as error:
            if pause == 0.1:
                print(f"scrapy-fleet: {error} Trying again.", file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _read(store: Store, wanted: Wanted, last: int | None = None) -> Iterator[Items]:
    """Items by their numbers, without touching them."""
    after, left = wanted.after, wanted.limit
    while left is None or left > 0:
        most = AT_ONCE if left is None else min(AT_ONCE, left)
        over = _is_over(store) if wanted.follow else True
        some: Items = insist(partial(store.items, after, most))
        some = [pair for pair in some if last is None or pair[0] <= last]
        if some:
            yield some
            after = some[-1][0]
            left = None if left is None else left - len(some)
        elif over:
            return
        else:
            time.sleep(LOOK_EVERY)


def _taken(store: Store, wanted: Wanted) -> Iterator[Items]:
    """Items for this consumer of the group. Those before have been acknowledged."""
    consumer = wanted.consumer or f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}"
    group, left = wanted.group or "", wanted.limit
    while left is None or left > 0:
        most = AT_ONCE if left is None else min(AT_ONCE, left)
        over = _is_over(store) if wanted.follow else True
        some: Items = insist(partial(store.take_items, group, consumer, most, wanted.timeout))
        if some:
            yield some
            left = None if left is None else left - len(some)
        elif over and not (wanted.follow and _others_have_some(store, group)):
            return
        else:
            time.sleep(LOOK_EVERY)


def _is_over(store: Store) -> bool:
    """Whether no more will come: asked before the last look."""
    return bool(insist(partial(store.snapshot, 0)).status == "finished")


def _others_have_some(store: Store, group: str) -> bool:
    """What they have comes to us, should they die."""
    return any(each.taken for each in insist(store.item_groups) if each.name == group)


def _all_fields(store: Store, wanted: Wanted) -> tuple[tuple[str, ...], int]:
    """The columns of a table of all that is wanted, as they are met, and the last item that was seen."""
    fields: dict[str, None] = {}
    last = wanted.after
    for some in _read(store, wanted._replace(follow=False)):
        last = some[-1][0]
        for _, data in some:
            try:
                fields |= dict.fromkeys(map(str, decoded(data)))
            except Unreadable:
                continue
    return tuple(fields), last


def _trim(store: Store, name: str, wanted: Wanted) -> int:
    groups, removed = store.item_groups(), store.trim_items()
    if wanted.as_json:
        print_json({"crawl": name, "removed": removed})
    elif not groups:
        print(f"Nothing was removed: no group has acknowledged items of crawl {plain(name)!r}.")
    else:
        print(f"{count(removed, 'item')} of crawl {plain(name)!r} removed: all groups have dealt with them.")
    return 0


# Groups


def groups(place: Place, crawl: str | None, *, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        found = store.item_groups()
        total = store.snapshot(0).items
    if as_json:
        print_json({"crawl": name, "items": total, "groups": msgspec.to_builtins(found)})
    elif not found:
        print(f"No group consumes items of crawl {plain(name)!r}.")
    else:
        rows = [(each.name, number(each.left), number(each.taken)) for each in found]
        print(table(("group", ">left", ">taken"), rows))
    return 0


def forget(place: Place, crawl: str | None, group: str, *, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        if not store.drop_item_group(group):
            names = ", ".join(each.name for each in store.item_groups())
            there = f"There is: {names}." if names else "There is none."
            raise FleetError(f"No group {group!r} consumes items of crawl {name!r}. {there}")
    if as_json:
        print_json({"crawl": name, "group": group, "forgotten": True})
    else:
        print(f"Group {plain(group)!r} of crawl {plain(name)!r} is forgotten.")
    return 0
