"""The verbs of the store protocol, on SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from scrapy_fleet.cargo import Piece
from scrapy_fleet.model import (
    Batch,
    Beat,
    Entry,
    Joined,
    Kind,
    Lease,
    Mode,
    Override,
    Paper,
    Plan,
    Receipt,
    Row,
    Seeding,
    SeenPlan,
    SlotView,
    Snapshot,
    Worker,
)
from scrapy_fleet.store.base import refuse_beside
from scrapy_fleet.store.sqlite import cargo, controlling, observing, papers, seen
from scrapy_fleet.store.sqlite.applying import Applying
from scrapy_fleet.store.sqlite.changes import Changes, text
from scrapy_fleet.store.sqlite.database import Database, counts_of, decode_plan
from scrapy_fleet.store.sqlite.items import ItemVerbs
from scrapy_fleet.store.sqlite.knowing import Knowing
from scrapy_fleet.store.sqlite.leasing import TOKENS_PER_BATCH, Leasing
from scrapy_fleet.store.sqlite.treating import Treating

_decode = msgspec.json.Decoder().decode


class SqliteStore(Knowing, ItemVerbs):
    """See :class:`scrapy_fleet.store.base.Store` for what each verb means."""

    def __init__(
        self,
        path: str | Path,
        crawl: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        durability: Literal["full", "normal"] = "full",
        create: bool = True,
    ) -> None:
        path = Path(path)
        self.url = f"sqlite://{path.absolute().as_posix()}"
        self._db = Database(path, crawl, clock, durability, create=create)
        self._leasing = Leasing(self._db, random or Random())

    def close(self) -> None:
        self._db.close()

    # Joining

    def join(self, worker: Worker, plan: Plan, ttl: float, *, run: int | None = None) -> Joined:
        db = self._db
        execute = db.connection.execute
        with db.write():
            crawl = db.crawl()
            now = db.now(crawl)
            new_run = crawl["finished"] and run is None
            resumed = not new_run and crawl["accepted"] > 0
            if new_run and plan.forgets:
                seen.forget_all(db, plan.seen)
            else:
                seen.settle(db, crawl, plan.seen)
            if new_run:
                controlling.begin_anew(db)
            plan_text = msgspec.json.encode(plan).decode()
            execute("UPDATE crawl SET plan = ?, clock = ?", (plan_text, now))
            if plan_text != crawl["plan"]:
                Treating(db, plan, Changes(db, crawl, now)).follow_plan()
            db.run("join", **msgspec.structs.asdict(worker), ttl=ttl, now=now, told=crawl["halts"])
            num = db.worker(worker.id)["num"]
            if run is None:
                controlling.start_again(db, num, now)
            crawl = db.crawl()
            seeder, seeding = _seeding(crawl, num)
            execute("UPDATE crawl SET seeder = ?", (seeder,))
            others = execute("SELECT id, host, pid, home, birth FROM worker WHERE num != ?", (num,))
            return Joined(
                run=crawl["run"],
                resumed=resumed,
                counts=counts_of(crawl),
                seeding=seeding,
                state={r["name"]: r["value"] for r in execute("SELECT name, value FROM state")},
                others=tuple(Worker(*row) for row in others),
                mode=crawl["mode"],
            )

    # Committing

    def commit(self, batch: Batch) -> Receipt:
        db = self._db
        with db.write():
            worker = db.worker(batch.worker)
            crawl = db.crawl()
            changes = Changes(db, crawl, db.now(crawl))
            num: int = worker["num"]
            if batch.seq <= worker["seq"]:
                return self._repeat(batch, worker, crawl, changes.now)
            refuse_beside(batch)
            plan = decode_plan(crawl["plan"])
            applying = Applying(db, plan, changes)
            known = applying.add(batch.adds, crawl) if batch.adds else ()
            if batch.marks:
                met = seen.meet(db, crawl, batch.marks, changes.counts["seen"])
                changes.counts["seen"] += met.grown
            items = [*applying.end(batch, num), *batch.items]
            if batch.leave:
                applying.release(applying.held(num))
            seeded = bool(crawl["seeded"])
            seeder, seeding = _seeding(crawl, num)
            if seeding is Seeding.MINE and (batch.seeded or batch.leave):
                seeder = None
                if batch.seeded:
                    seeded, seeding = True, Seeding.DONE
            applying.keep(batch, items)
            held = self._halted(num, batch.seq, worker["told"], changes.halts)
            leases: tuple[Lease, ...] = ()
            alone, retry_in = worker["alone"], None
            if batch.want and not batch.leave and crawl["mode"] == "run":
                changes.write_slots()
                suspects = crawl["suspects"] + changes.counts["suspects"]
                leases, alone = self._leasing.lease(
                    num, batch.seq, batch.want, alone, suspects, plan, changes
                )
                changes.write_slots()
                if len(leases) < batch.want:
                    retry_in = self._leasing.retry_in(changes.now, suspects)
            left = crawl["waiting"] + crawl["leased"] + changes.counts["waiting"] + changes.counts["leased"]
            ends = batch.leave and batch.finish and seeded and not (left or crawl["feeding"])
            finished = ends or (bool(crawl["finished"]) and not changes.counts["accepted"])
            counts = changes.write(seeder=seeder, seeded=seeded, finished=finished)
            if batch.leave:
                db.connection.execute("DELETE FROM worker WHERE num = ?", (num,))
            else:
                db.run(
                    "worker",
                    num=num,
                    now=changes.now,
                    seq=batch.seq,
                    known=text(known),
                    alone=alone,
                    told=changes.halts,
                )
            return Receipt(counts, seeding, leases, known, retry_in, crawl["mode"], held)

    def _repeat(self, batch: Batch, worker: sqlite3.Row, crawl: sqlite3.Row, now: float) -> Receipt:
        num = worker["num"]
        latest = batch.seq == worker["seq"]
        leases = self._leasing.leases(num, batch.seq, now) if latest else ()
        known = tuple(_decode(worker["known"])) if latest else ()
        held = self._halted(num, batch.seq, worker["earlier"], crawl["halts"]) if latest else ()
        self._db.run("beat", num=num, now=now)
        seeding = Seeding.DONE if crawl["seeded"] else Seeding.OTHER
        if crawl["seeder"] == num:
            seeding = Seeding.MINE
        return Receipt(counts_of(crawl), seeding, leases, known, mode=crawl["mode"], held=held)

    def _halted(self, num: int, seq: int, told: int, halts: int) -> tuple[str, ...]:
        """The slots that were halted since the worker was told, if it has leases of earlier batches there."""
        if told == halts:
            return ()
        first = seq * TOKENS_PER_BATCH
        return tuple(_decode(self._db.value("halted", worker=num, told=told, first=first)))

    # Workers

    def beat(self, worker: str) -> Beat:
        db = self._db
        with db.write():
            num: int = db.worker(worker)["num"]
            crawl = db.crawl()
            now = db.now(crawl)
            db.run("beat", num=num, now=now)
            if seen.plan_of(crawl).kind == "rolling":
                seen.sweep(db)
            if crawl["feeding"]:
                db.connection.execute("DELETE FROM producer WHERE deadline <= ?", (now,))
                crawl = db.crawl()
            silent = db.connection.execute(
                "SELECT num FROM worker WHERE deadline <= ? AND num != ?", (now, num)
            ).fetchall()
            reaped = 0
            if silent:
                reaped = self._reap([row["num"] for row in silent], crawl, now)
                crawl = db.crawl()
            seeder, seeding = _seeding(crawl, num)
            db.connection.execute("UPDATE crawl SET seeder = ?, clock = ?", (seeder, now))
            workers: int = db.value("SELECT count(*) FROM worker")
            return Beat(counts_of(crawl), seeding, reaped, crawl["mode"], workers)

    def feed(self, producer: str, ttl: float) -> None:
        with self._db.write():
            now = self._db.now(self._db.crawl())
            execute = self._db.connection.execute
            if ttl > 0:
                execute("INSERT OR REPLACE INTO producer VALUES (?, ?)", (producer, now + ttl))
            else:
                execute("DELETE FROM producer WHERE name = ?", (producer,))

    def push(self, entries: tuple[Entry, ...], marks: tuple[int, ...] = ()) -> tuple[int, ...]:
        with self._changing() as (crawl, changes, applying):
            keyed = marks or any(entry.key is not None for entry in entries)
            if keyed and seen.settled(crawl) is None:
                seen.settle(self._db, crawl, SeenPlan())
            known = applying.add(entries, crawl) if entries else ()
            if marks:
                changes.counts["seen"] += seen.meet(self._db, crawl, marks, changes.counts["seen"]).grown
            accepted = len(known) < len(entries)
            changes.write(seeder=crawl["seeder"], finished=crawl["finished"] and not accepted)
            return known

    def waiting(self, slot: str) -> int:
        with self._db.read():
            return int(self._db.value("waiting_in", slot=slot))

    def give_up(self, workers: tuple[str, ...]) -> int:
        db = self._db
        with db.write():
            crawl = db.crawl()
            rows = db.connection.execute(
                "SELECT num FROM worker WHERE id IN (SELECT value FROM json_each(?))", (text(workers),)
            ).fetchall()
            return self._reap([row["num"] for row in rows], crawl, db.now(crawl))

    def _reap(self, nums: list[int], crawl: sqlite3.Row, now: float) -> int:
        changes = Changes(self._db, crawl, now)
        applying = Applying(self._db, decode_plan(crawl["plan"]), changes)
        held = [found for num in nums for found in applying.held(num)]
        applying.bury(held)
        self._db.connection.execute(
            "DELETE FROM worker WHERE num IN (SELECT value FROM json_each(?))", (text(nums),)
        )
        seeder = None if crawl["seeder"] in nums else crawl["seeder"]
        changes.write(seeder=seeder, finished=crawl["finished"])
        return len(held)

    # Observing and controlling

    def snapshot(self, slots: int = 20) -> Snapshot:
        with self._db.read():
            return observing.snapshot(self._db, slots)

    def slot(self, name: str) -> SlotView | None:
        with self._db.read():
            return observing.slot(self._db, name)

    def scan(self, kind: Kind, *, slot: str | None = None, after: int = 0, limit: int = 100) -> list[Row]:
        with self._db.read():
            return observing.scan(self._db, kind, slot, after, limit)

    def control(self, mode: Mode) -> None:
        with self._db.write():
            controlling.set_mode(self._db, mode)

    def clear(self) -> None:
        with self._db.write():
            controlling.clear(self._db)

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        with self._changing() as (crawl, changes, applying):
            dead = applying.take_dead(ids)
            applying.raise_dead(dead)
            changes.write(seeder=crawl["seeder"], finished=crawl["finished"] and not dead)
            return len(dead)

    def drop(self, ids: tuple[int, ...] | None = None) -> int:
        with self._changing() as (crawl, changes, applying):
            dead = applying.take_dead(ids)
            self._db.run("settle", ids=text([found.id for found in dead]))
            changes.counts["done"] += len(dead)
            changes.write(seeder=crawl["seeder"], finished=crawl["finished"])
            return len(dead)

    def override(self, slot: str, override: Override | None) -> None:
        with self._changing() as (crawl, changes, _):
            Treating(self._db, decode_plan(crawl["plan"]), changes).override(slot, override)
            changes.write(seeder=crawl["seeder"], finished=crawl["finished"])

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[sqlite3.Row, Changes, Applying]]:
        """A transaction that no worker began."""
        db = self._db
        with db.write():
            crawl = db.crawl()
            changes = Changes(db, crawl, db.now(crawl))
            yield crawl, changes, Applying(db, decode_plan(crawl["plan"]), changes)

    # Papers

    def paper(self, name: str, worker: str, max_age: float, patience: float) -> Paper:
        with self._db.write():
            return papers.ask(self._db, name, worker, max_age, patience)

    def write_paper(self, name: str, data: bytes) -> None:
        with self._db.write():
            papers.write(self._db, name, data)

    # Carrying a crawl elsewhere

    def dump(self) -> Iterator[Piece]:
        with self._db.read():
            yield from cargo.dump(self._db)

    def load(self, pieces: Iterable[Piece]) -> None:
        with self._db.write():
            cargo.load(self._db, pieces)


def _seeding(crawl: sqlite3.Row, num: int) -> tuple[int | None, Seeding]:
    """Who runs the seeds from now on, and what that is to the worker: nobody's become its own."""
    if crawl["seeded"]:
        return None, Seeding.DONE
    if crawl["seeder"] in (None, num):
        return num, Seeding.MINE
    return crawl["seeder"], Seeding.OTHER
