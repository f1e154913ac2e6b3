"""What a crawl in a file has met, for each kind of filter: see :mod:`scrapy_fleet.seen`."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from scrapy_fleet import seen
from scrapy_fleet.errors import NoKeys
from scrapy_fleet.filters import Bloom
from scrapy_fleet.model import SeenPlan, SeenView
from scrapy_fleet.seen import BLOCK_BYTES, Generation
from scrapy_fleet.store.sqlite.changes import chunks, text
from scrapy_fleet.store.sqlite.database import Database

SWEPT_AT_ONCE = 4000
"""Keys of dropped generations that one call deletes."""
COPIED_AT_ONCE = 20_000
EXACT = ("exact", "off")
"""The kinds that keep keys in table ``seen``."""
LEAST = -(1 << 63)
"""The least key."""

_decode = msgspec.json.Decoder().decode


class Met(msgspec.Struct):
    """What came of keys."""

    known: list[int]
    """The positions of those that had been met."""
    new: int
    grown: int
    """By how much the count of seen ones grew: less than the new ones, when old ones were dropped."""


@lru_cache(maxsize=8)
def _decode_seen(plan: str) -> SeenPlan:
    return msgspec.json.decode(plan, type=SeenPlan)


def settled(crawl: sqlite3.Row) -> SeenPlan | None:
    """How the crawl knows keys; None while nobody has said it."""
    return None if crawl["filter"] is None else _decode_seen(crawl["filter"])


def plan_of(crawl: sqlite3.Row) -> SeenPlan:
    return settled(crawl) or SeenPlan()


def settle(db: Database, crawl: sqlite3.Row, plan: SeenPlan) -> None:
    """Fix it, if it is not; the times of a rolling filter are the newest plan's."""
    stored = settled(crawl)
    if stored is not None:
        seen.check(stored, plan, crawl["name"])
    if stored is None or (plan.kind == "rolling" and plan != stored):
        write_plan(db, plan)


def write_plan(db: Database, plan: SeenPlan | None) -> None:
    value = None if plan is None else msgspec.json.encode(plan).decode()
    db.connection.execute("UPDATE crawl SET filter = ?", (value,))


def forget_all(db: Database, plan: SeenPlan | None) -> None:
    """Nothing is seen any more, and the filter is another, or yet to be settled."""
    for table in ("seen", "bloom", "rolling", "generation"):
        db.connection.execute(f"DELETE FROM {table}")
    db.connection.execute("UPDATE crawl SET seen = 0")
    write_plan(db, plan)


def meet(db: Database, crawl: sqlite3.Row, keys: Sequence[int], grown: int = 0) -> Met:
    """Keys are met, in this order; ``grown``: how many were new since the crawl's row was read."""
    plan = plan_of(crawl)
    if not keys:
        return Met([], 0, 0)
    if plan.kind in EXACT:
        new = db.run("mark_keys", keys=text(keys)).rowcount
        return Met([], new, new)
    if plan.kind == "bloom":
        return _meet_bloom(db, plan, keys, crawl["seen"] + grown)
    return _meet_rolling(db, plan, keys)


# Bloom


def read_blocks(db: Database, numbers: Sequence[int]) -> dict[int, bytearray]:
    """Those of these blocks that are there."""
    row = db.run("read_blocks", numbers=text(numbers)).fetchone()
    found, bits = _decode(row[0]), memoryview(row[1])
    return {
        number: bytearray(bits[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES]) for at, number in enumerate(found)
    }


def write_blocks(db: Database, blocks: dict[int, bytearray], numbers: Sequence[int]) -> None:
    rows: list[object] = []
    for number in sorted(numbers):
        rows += (number, blocks[number])
    for chunk in chunks(rows, columns=2):
        places = ",".join(["(?,?)"] * (len(chunk) // 2))
        db.connection.execute(
            f"INSERT INTO bloom VALUES {places} ON CONFLICT (block) DO UPDATE SET bits = excluded.bits", chunk
        )


def _meet_bloom(db: Database, plan: SeenPlan, keys: Sequence[int], count: int) -> Met:
    places = [seen.words(key) for key in keys]
    there = seen.layers(plan, seen.layer_count(plan, count + len(keys)))
    numbers = {seen.block_of(layer, where) for layer in there for where in places}
    bloom = Bloom(plan, count, read_blocks(db, list(numbers)))
    known = [at for at, where in enumerate(places) if not bloom.meet(where)]
    write_blocks(db, bloom.blocks, list(bloom.changed))
    return Met(known, bloom.count - count, bloom.count - count)


def load_blocks(db: Database, plan: SeenPlan, blocks: list[tuple[int, bytes]], count: int) -> None:
    bloom = Bloom(plan, 0, read_blocks(db, [number for number, _ in blocks]))
    bloom.merge(blocks, count)
    write_blocks(db, bloom.blocks, list(bloom.blocks))
    db.connection.execute("UPDATE crawl SET seen = max(seen, ?)", (count,))


# Rolling


def generations(db: Database) -> list[Generation]:
    rows = db.connection.execute(
        "SELECT number, began, last, hot, seen FROM generation WHERE NOT dropped ORDER BY number"
    )
    return [Generation(number, began, last, bool(hot), count) for number, began, last, hot, count in rows]


def _age_now(db: Database, there: list[Generation]) -> float:
    """The time that keys age by. It goes on while the machine is off, and never goes back."""
    return max([db.wall(), *(each.last for each in there)])


def _meet_rolling(db: Database, plan: SeenPlan, keys: Sequence[int]) -> Met:
    there = generations(db)
    now = _age_now(db, there)
    gone = [each for each in there if each.over(plan, now)]
    there = [each for each in there if not each.over(plan, now)]
    grown = -sum(each.seen for each in gone)
    db.run("drop_generations", numbers=text([each.number for each in gone]))
    sweep(db)
    cold = seen.newest(there, plan, now, hot=False) or _begin(db, there, now, hot=False)
    hot = seen.newest(there, plan, now, hot=True)
    place = dict(_decode(db.value("places", keys=text(keys))))
    by_number = {each.number: each for each in there}
    entering: dict[int, list[int]] = {}
    leaving: list[tuple[int, int]] = []
    known: list[int] = []
    for at, key in enumerate(keys):
        if key in place:
            known.append(at)
            number = place[key]
            if number == cold.number or (hot is not None and number == hot.number):
                by_number[number].last = now
                continue
            leaving.append((number, key))
            by_number[number].seen -= 1
            to = cold
            if plan.hot > 1:
                if hot is None:
                    hot = _begin(db, there, now, hot=True)
                    by_number[hot.number] = hot
                to = hot
        else:
            to = cold
            grown += 1
        place[key] = to.number
        entering.setdefault(to.number, []).append(key)
        to.seen += 1
        to.last = now
    if leaving:
        db.run("leave_generations", places=text(leaving))
    for number, some in entering.items():
        db.run("enter_generation", number=number, keys=text(some))
    db.run("generations", rows=text([(each.number, each.last, each.seen) for each in there]))
    return Met(known, len(keys) - len(known), grown)


def _begin(db: Database, there: list[Generation], now: float, *, hot: bool) -> Generation:
    number = db.value("SELECT coalesce(max(number), 0) + 1 FROM generation")
    db.connection.execute("INSERT INTO generation VALUES (?, ?, ?, ?, 0, 0)", (number, now, now, hot))
    there.append(Generation(number, now, now, hot))
    return there[-1]


def sweep(db: Database) -> None:
    """Delete some of what is dropped: never so much that others wait for it."""
    row = db.connection.execute("SELECT min(number) FROM generation WHERE dropped").fetchone()
    if row[0] is not None and db.run("sweep", number=row[0], most=SWEPT_AT_ONCE).rowcount < SWEPT_AT_ONCE:
        db.connection.execute("DELETE FROM generation WHERE number = ?", (row[0],))


# Looking, and forgetting


def forget(db: Database, crawl: sqlite3.Row, keys: Sequence[int]) -> int:
    """How many of these keys were there; they are not any more."""
    plan = plan_of(crawl)
    if plan.kind == "bloom":
        raise NoKeys(NoKeys.__doc__)
    if plan.kind != "rolling":
        return db.run("forget_exact", keys=text(keys)).rowcount
    places = [(number, key) for key, number in _decode(db.value("places", keys=text(sorted(set(keys)))))]
    db.run("leave_generations", places=text(places))
    db.run("thin_generations", places=text(places))
    return len(places)


def has(db: Database, crawl: sqlite3.Row, keys: Sequence[int]) -> tuple[bool, ...]:
    plan = plan_of(crawl)
    if plan.kind in EXACT or not keys:
        return tuple(map(bool, _decode(db.value("seen", keys=text(keys)))))
    if plan.kind == "rolling":
        there = dict(_decode(db.value("places", keys=text(keys))))
        return tuple(key in there for key in keys)
    layers = seen.layers(plan, seen.layer_count(plan, crawl["seen"]))
    numbers = {seen.block_of(layer, seen.words(key)) for layer in layers for key in keys}
    bloom = Bloom(plan, crawl["seen"], read_blocks(db, list(numbers)))
    return tuple(key in bloom for key in keys)


def view(db: Database, crawl: sqlite3.Row) -> SeenView:
    plan = settled(crawl)
    if plan is None:
        return SeenView()
    if plan.kind == "bloom":
        return seen.view_bloom(plan, crawl["seen"], _size(db, "bloom"))
    if plan.kind == "rolling":
        there = generations(db)
        return seen.view_rolling(plan, there, _size(db, "rolling"), _age_now(db, there))
    return SeenView(plan, crawl["seen"], _size(db, "seen"))


def _size(db: Database, table: str) -> int | None:
    try:
        return int(db.value("SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name = :t", t=table))
    except sqlite3.OperationalError:  # this SQLite was made without it
        return None


def page(db: Database, crawl: sqlite3.Row, cursor: str, limit: int) -> tuple[str, list[int]]:
    plan = plan_of(crawl)
    if plan.kind == "bloom":
        raise NoKeys(NoKeys.__doc__)
    number, _, after = cursor.rpartition(":")
    found: list[int]
    if plan.kind == "rolling":
        for each in generations(db):
            if each.number >= int(number or 0):
                first = _next(after if number == str(each.number) else "")
                found = _decode(db.value("rolling_page", number=each.number, first=first, limit=limit))
                if found:
                    return f"{each.number}:{found[-1]}", found
        return "", []
    found = _decode(db.value("exact_page", first=_next(after), limit=limit))
    return f":{found[-1]}" if len(found) == limit else "", found


def _next(after: str) -> float:
    """The key that a page begins with at the earliest."""
    # Nothing is greater than infinity, also in SQL.
    return LEAST if not after else int(after) + 1 if int(after) < -LEAST - 1 else math.inf


def blocks_page(db: Database, cursor: str, limit: int) -> tuple[str, list[tuple[int, bytes]]]:
    rows = db.connection.execute(
        "SELECT block, bits FROM bloom WHERE block > ? ORDER BY block LIMIT ?", (int(cursor or -1), limit)
    ).fetchall()
    return str(rows[-1][0]) if len(rows) == limit else "", [(number, bits) for number, bits in rows]


# Converting


def convert(db: Database, crawl: sqlite3.Row, plan: SeenPlan) -> int:
    """In one transaction; nobody else is in the crawl."""
    stored, count = plan_of(crawl), int(crawl["seen"])
    if plan.kind == "off":
        forget_all(db, plan)
        return 0
    if stored.kind == "bloom":
        raise NoKeys(NoKeys.__doc__)
    if plan.kind == "bloom":
        bloom = Bloom(plan)
        cursor, more = "", True
        while more:
            cursor, keys = page(db, crawl, cursor, COPIED_AT_ONCE)
            for key in keys:
                bloom.add(key)
            more = cursor != ""
        forget_all(db, plan)
        write_blocks(db, bloom.blocks, list(bloom.blocks))
        db.connection.execute("UPDATE crawl SET seen = ?", (bloom.count,))
        return count
    if stored.kind != plan.kind:
        if plan.kind == "rolling":
            now = db.wall()
            db.run("exact_to_rolling")
            db.connection.execute("INSERT INTO generation VALUES (1, ?, ?, 0, ?, 0)", (now, now, count))
            db.connection.execute("DELETE FROM seen")
        elif stored.kind == "rolling":
            db.run("rolling_to_exact")
            for table in ("rolling", "generation"):
                db.connection.execute(f"DELETE FROM {table}")
    write_plan(db, plan)
    return count
