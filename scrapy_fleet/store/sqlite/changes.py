"""What one transaction changes of the counters, gathered so that each row is written once."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from scrapy_fleet.model import Counts
from scrapy_fleet.store.sqlite.database import Database

WAITING, LEASED, DEAD, SUSPECT = range(4)
"""``entry.state``"""
OVER, RUNNING, SPARE = range(3)
"""``entry.busy``"""

_encode = msgspec.json.Encoder().encode


class SlotChange(msgspec.Struct, array_like=True):
    """What changes of one slot; laid out as statement ``slots`` reads it."""

    id: int
    queued: int = 0
    suspects: int = 0
    leased: int = 0
    active: int = 0
    done: int = 0
    latency: float | None = None
    next_at: float | None = None
    served: int | None = None
    newest: float | None = None
    leeway: float | None = None
    due_at: float | None = None


class Held(msgspec.Struct, array_like=True):
    """A leased or dead entry, as statements ``held`` and ``dead`` give it."""

    token: int | None
    slot: int
    busy: int
    attempts: int
    id: int
    alone: int
    at: float | None = None
    """``held`` alone says so."""


class HeldIn(msgspec.Struct, array_like=True):
    """A slot that has leases, as statement ``held`` gives it."""

    id: int
    latency: float | None
    mannered: int
    next_at: float
    newest: float
    leeway: float
    held_until: float | None
    """None if it is given up."""


decode_held = msgspec.json.Decoder(list[Held]).decode
decode_slots = msgspec.json.Decoder(list[HeldIn]).decode


class Changes:
    def __init__(self, db: Database, crawl: sqlite3.Row, now: float) -> None:
        self.now = now
        self.counts: Counter[str] = Counter()
        self._db = db
        self._crawl = crawl
        self._slots: dict[int, SlotChange] = {}

    def slot(self, number: int) -> SlotChange:
        if number not in self._slots:
            self._slots[number] = SlotChange(number)
        return self._slots[number]

    def enter(self, slot: int, state: int, n: int = 1) -> None:
        """``n`` entries of a slot enter a state (or leave it, if negative)."""
        change = self.slot(slot)
        if state == LEASED:
            change.leased += n
            self.counts["leased"] += n
        elif state == DEAD:
            self.counts["dead"] += n
        else:
            self.counts["waiting"] += n
            if state == SUSPECT:
                change.suspects += n
                self.counts["suspects"] += n
            else:
                change.queued += n

    def unlease(self, held: Held) -> None:
        """An entry is leased no more."""
        self.slot(held.slot).active -= held.busy == RUNNING
        self.enter(held.slot, LEASED, -1)

    def turn(self, slot: int, state: int, *, spare: bool = False) -> int:
        """A waiting entry of a slot is leased; the number of this turn."""
        self.counts["served"] += 1
        served: int = self._crawl["served"] + self.counts["served"]
        change = self.slot(slot)
        change.active += not spare
        change.served = served
        self.enter(slot, state, -1)
        self.enter(slot, LEASED)
        return served

    def halt(self) -> int:
        """Slots are halted: how often that has happened, with this time."""
        self.counts["halts"] = 1
        return self.halts

    @property
    def halts(self) -> int:
        return int(self._crawl["halts"]) + self.counts["halts"]

    def write_slots(self) -> None:
        if self._slots:
            self._db.run("slots", deltas=text(list(self._slots.values())), now=self.now)
            self._slots = {}

    def write(self, *, seeder: int | None, seeded: bool | None = None, finished: bool = False) -> Counts:
        """Write all that was gathered; the crawl's counters as they are now."""
        self.write_slots()
        names = ("accepted", "waiting", "leased", "done", "dead")
        self._db.run(
            "count",
            **{name: self.counts[name] for name in (*names, "suspects", "seen", "served", "halts")},
            seeded=self._crawl["seeded"] if seeded is None else seeded,
            seeder=seeder,
            finished=finished,
            now=self.now,
        )
        return Counts(
            **{name: self._crawl[name] + self.counts[name] for name in names}, feeding=self._crawl["feeding"]
        )


def text(values: Sequence[object] | dict[str, float]) -> str:
    return _encode(values).decode()


def chunks(values: list[Any], columns: int) -> Iterator[list[Any]]:
    """Cut into chunks of 256, 128, ... rows, so that few prepared statements serve every size."""
    start, rows = 0, 256
    while start < len(values):
        while rows * columns > len(values) - start:
            rows //= 2
        yield values[start : start + rows * columns]
        start += rows * columns
