"""``snapshot`` and ``restore``: a crawl is carried from one store to another, whichever they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scrapy_fleet.cargo import Piece
from scrapy_fleet.errors import CrawlInUse, FleetError
from scrapy_fleet.model import Counts, Snapshot
from scrapy_fleet.ops import snapshot_file
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, number, plain, print_json, size
from scrapy_fleet.ops.snapshot_file import Blocks, Filter, Head, Keys, Seen

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

KEYS_AT_ONCE = 10_000


def at_rest(store: Store) -> Snapshot:
    """The crawl, in which nothing happens: its workers are gone or paused, and nothing is in their hands.

    What dead workers held goes back first, as it does when another joins.
    """
    snapshot = store.snapshot(0)
    alive = [worker for worker in snapshot.workers if worker.deadline_in > 0]
    name = snapshot.crawl
    if alive and snapshot.mode != "pause":
        raise CrawlInUse(
            f"{count(len(alive), 'worker')} of crawl {name!r} may be running. Pause them (scrapy fleet pause "
            f"{name}), or stop them; workers that were killed are given up after FLEET_WORKER_TIMEOUT."
        )
    silent = tuple(worker.id for worker in snapshot.workers if worker.deadline_in <= 0)
    if silent and snapshot.counts.leased:
        store.give_up(silent)
        snapshot = store.snapshot(0)
    if snapshot.counts.leased:
        raise CrawlInUse(
            f"Workers of crawl {name!r} still have {count(snapshot.counts.leased, 'request')} in hand, "
            "though it is paused. Wait until they have ended them, and repeat this."
        )
    return snapshot


def seen_of(store: Store) -> Iterator[Seen]:
    """What was seen, and how it is known. (Times of a rolling filter are not kept: all was met just now.)"""
    view = store.seen_info()
    if view.plan is not None:
        yield Filter(view.plan, view.count)
        if view.plan.kind == "bloom":
            yield from _blocks_of(store)
            return
    yield from keys_of(store)


def keys_of(store: Store) -> Iterator[Keys]:
    cursor, keys = store.seen_keys("", KEYS_AT_ONCE)
    while True:
        if keys:
            yield Keys(keys)
        if not cursor:
            return
        cursor, keys = store.seen_keys(cursor, KEYS_AT_ONCE)


def _blocks_of(store: Store) -> Iterator[Blocks]:
    cursor, blocks = store.bloom_blocks()
    yield Blocks(blocks)
    while cursor:
        cursor, blocks = store.bloom_blocks(cursor)
        yield Blocks(blocks)


def snapshot(place: Place, crawl: str, path: Path, *, replace: bool, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    if path.exists() and not replace:
        raise FleetError(f"{path} is there already. Name another file, or write over it with --replace.")
    with closing(place.open(name)) as store:
        before = at_rest(store)
        head = Head(name, before.run, _settled(before.counts), before.seen, before.items)
        written = snapshot_file.write(path, head, _unchanged(store, before))
    counts = before.counts
    if as_json:
        told = {"crawl": name, "file": str(path), "bytes": written, "counts": msgspec.to_builtins(counts)}
        print_json({**told, "seen": before.seen, "items": before.items})
    else:
        print(f"Crawl {plain(name)!r} is in {plain(str(path))} ({size(written)}): {_numbers(head)}.")
    return 0


def _unchanged(store: Store, before: Snapshot) -> Iterator[Piece | Seen]:
    """All of the crawl; if it was changed meanwhile, the file is not finished."""
    yield from chain(seen_of(store), store.dump())
    if _same(before) != _same(store.snapshot(0)):
        raise CrawlInUse(
            f"Crawl {before.crawl!r} was changed while it was copied: a worker or a producer came. Pause it "
            f"(scrapy fleet pause {before.crawl}), and repeat this. No file was written."
        )


def _same(snapshot: Snapshot) -> tuple[object, ...]:
    found = snapshot
    return (found.run, _settled(found.counts), found.seen, found.items, found.slot_count, found.stats)


def _settled(counts: Counts) -> Counts:
    """Who feeds a crawl is not part of it."""
    return msgspec.structs.replace(counts, feeding=0)


def restore(place: Place, path: Path, *, crawl: str | None, replace: bool, as_json: bool) -> int:
    head = snapshot_file.check(path)
    name = crawl or head.crawl
    if (place.url or "").partition(":")[0] == "memory":
        raise FleetError("A crawl in memory: is gone with its process. Name another place with --url.")
    with closing(place.connect(name)) as store:
        _make_room(store, replace=replace)
        try:
            after = _bring(store, path, head)
        except BaseException:
            # As if it had not been begun.
            with suppress(FleetError):
                store.clear()
            raise
    if as_json:
        told = {"crawl": name, "url": store.url, "counts": msgspec.to_builtins(after.counts)}
        print_json({**told, "seen": after.seen, "items": after.items, "mode": after.mode})
        return 0
    print(f"Crawl {plain(name)!r} is at {store.url}: {_numbers(head)}.")
    if after.mode == "pause":
        print(f"It is paused, as it was. Let it go on: resume {plain(name)}")
    return 0


def _make_room(store: Store, *, replace: bool) -> None:
    there = store.snapshot(0)
    if there.status == "new" and not (there.counts.accepted or there.seen or there.items):
        return
    if not replace:
        raise FleetError(
            f"There is a crawl {there.crawl!r} at {store.url} already, of {number(there.counts.accepted)} "
            "requests. Restore under another name with --crawl, or clear it first with --replace. "
            "Nothing was changed."
        )
    store.clear()


def _bring(store: Store, path: Path, head: Head) -> Snapshot:
    # Whoever joins now is to wait.
    store.control("pause")
    pieces: list[Piece] = []
    frames = snapshot_file.read(path)
    for frame in frames:
        match frame:
            case Filter():
                seen = frame
                store.use_seen(seen.plan)
            case Keys():
                store.mark(tuple(frame.keys))
            case Blocks():
                store.load_bloom(seen.plan, frame.blocks, seen.count)
            case _:
                pieces.append(frame)
                break
    store.load(chain(pieces, (piece for piece in frames if not isinstance(piece, Seen))))
    after = store.snapshot(0)
    if (_settled(after.counts), after.seen, after.items) != (head.counts, head.seen, head.items):
        raise FleetError(
            f"What is at {store.url} now is not what was in {path}: somebody else changed it. "
            "Nothing was restored."
        )
    return after


def _numbers(head: Head) -> str:
    counts = head.counts
    return (
        f"{number(counts.waiting)} waiting, {number(counts.done)} done, {number(counts.dead)} dead; "
        f"{number(head.seen)} seen, {number(head.items)} items"
    )
