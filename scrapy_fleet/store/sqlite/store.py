"""The verbs of the store protocol, on SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from scrapy_fleet.model import (
    Batch,
    Beat,
    Joined,
    Kind,
    Lease,
    Mode,
    Plan,
    Receipt,
    Row,
    Seeding,
    Snapshot,
    Worker,
)
from scrapy_fleet.store.base import HORIZON
from scrapy_fleet.store.sqlite import controlling, observing
from scrapy_fleet.store.sqlite.changes import (
    DEAD,
    SUSPECT,
    WAITING,
    Changes,
    Held,
    chunks,
    decode_held,
    text,
)
from scrapy_fleet.store.sqlite.database import Database, counts_of
from scrapy_fleet.store.sqlite.leasing import Leasing

_decode = msgspec.json.Decoder().decode
_decode_plan = msgspec.json.Decoder(Plan).decode

Move = tuple[int, int, int, str | None]
"""An entry, its new state and attempts, and why it is dead; as statement ``move`` reads it."""


class SqliteStore:
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
            if new_run:
                controlling.begin_anew(db, keep_seen=plan.keep_seen)
            execute("UPDATE crawl SET plan = ?, clock = ?", (msgspec.json.encode(plan).decode(), now))
            execute("DELETE FROM rule")
            rules = [(name, r.concurrency, r.delay, r.jitter) for name, r in plan.slots.items()]
            db.run("rules", rules=text(rules))
            db.run("apply_rules", **msgspec.structs.asdict(plan.rule))
            db.run("apply_phase", due=now + HORIZON)
            db.run("join", **msgspec.structs.asdict(worker), ttl=ttl, now=now)
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
            plan = _decode_plan(crawl["plan"])
            known = self._add(batch, plan, changes) if batch.adds else ()
            if batch.marks:
                changes.counts["seen"] += db.run("mark_keys", keys=text(batch.marks)).rowcount
            if batch.samples:
                self._sample(batch, num, changes)
            items = [*self._settle(batch, num, changes), *batch.items]
            if batch.releases or batch.leave:
                self._release(self._held(num, None if batch.leave else batch.releases), plan, changes)
            seeded = bool(crawl["seeded"])
            seeder, seeding = _seeding(crawl, num)
            if seeding is Seeding.MINE and (batch.seeded or batch.leave):
                seeder = None
                if batch.seeded:
                    seeded, seeding = True, Seeding.DONE
            self._keep(batch, items)
            leases: tuple[Lease, ...] = ()
            alone, retry_in = worker["alone"], None
            if batch.want and not batch.leave and crawl["mode"] == "run":
                changes.write_slots()
                suspects = crawl["suspects"] + changes.counts["suspects"]
                leases, alone = self._leasing.lease(num, batch.seq, batch.want, alone, suspects, changes)
                changes.write_slots()
                if len(leases) < batch.want:
                    retry_in = self._leasing.retry_in(changes.now, suspects)
            left = crawl["waiting"] + crawl["leased"] + changes.counts["waiting"] + changes.counts["leased"]
            ends = batch.leave and batch.finish and seeded and not left
            finished = ends or (bool(crawl["finished"]) and not changes.counts["accepted"])
            counts = changes.write(seeder=seeder, seeded=seeded, finished=finished)
            if batch.leave:
                db.connection.execute("DELETE FROM worker WHERE num = ?", (num,))
            else:
                db.run("worker", num=num, now=changes.now, seq=batch.seq, known=text(known), alone=alone)
            return Receipt(counts, seeding, leases, known, retry_in, crawl["mode"])

    def _repeat(self, batch: Batch, worker: sqlite3.Row, crawl: sqlite3.Row, now: float) -> Receipt:
        num = worker["num"]
        latest = batch.seq == worker["seq"]
        leases = self._leasing.leases(num, batch.seq, now) if latest else ()
        known = tuple(_decode(worker["known"])) if latest else ()
        self._db.run("beat", num=num, now=now)
        seeding = Seeding.DONE if crawl["seeded"] else Seeding.OTHER
        if crawl["seeder"] == num:
            seeding = Seeding.MINE
        return Receipt(counts_of(crawl), seeding, leases, known, mode=crawl["mode"])

    def _add(self, batch: Batch, plan: Plan, changes: Changes) -> tuple[int, ...]:
        db = self._db
        known: list[int] = []
        rows: list[object] = []
        keys: set[int] = set()
        for pos, entry in enumerate(batch.adds):
            if entry.key in keys:
                known.append(pos)
                continue
            if entry.key is not None:
                keys.add(entry.key)
            rows += (pos, entry.key, entry.slot, entry.rank, entry.payload)
        for chunk in chunks(rows, columns=5):
            places = ",".join(["(?,?,?,?,?)"] * (len(chunk) // 5))
            db.connection.execute(f"INSERT INTO incoming VALUES {places}", chunk)
        seen: list[int] = _decode(db.value("known")) if keys else []
        if seen:
            db.run("forget_known", known=text(seen))
            known = sorted(known + seen)
        accepted = len(batch.adds) - len(known)
        if accepted:
            db.run("mark_incoming")
            db.run("new_slots", **msgspec.structs.asdict(plan.rule))
            db.run("queue_incoming", lifo=plan.lifo)
            for slot, n in _decode(db.value("incoming_by_slot")):
                changes.enter(slot, WAITING, n)
        db.run("clear_incoming")
        changes.counts["accepted"] += accepted
        changes.counts["seen"] += len(keys) - len(seen)
        return tuple(known)

    def _held(self, num: int, tokens: Iterable[int] | None) -> list[Held]:
        """Those of the tokens (all, if None) that the worker holds."""
        if tokens is None:
            return decode_held(self._db.value("held_all", worker=num))
        return decode_held(self._db.value("held", worker=num, tokens=text(list(tokens))))

    def _sample(self, batch: Batch, num: int, changes: Changes) -> None:
        held = {h.token: h for h in self._held(num, (s.token for s in batch.samples)) if h.busy}
        latencies = {h.slot: h.latency for h in held.values()}
        freed: list[int] = []
        for sample in batch.samples:
            found = held.pop(sample.token, None)
            if found is None:
                continue
            freed.append(found.id)
            change = changes.slot(found.slot)
            change.active -= 1
            if sample.latency is not None:
                old = latencies[found.slot]
                new = sample.latency if old is None else 0.7 * old + 0.3 * sample.latency
                latencies[found.slot] = change.latency = new
        self._db.run("free", ids=text(freed))

    def _settle(self, batch: Batch, num: int, changes: Changes) -> list[bytes]:
        """Settle the outcomes; the items of those that were held."""
        if not batch.outcomes:
            return []
        held = {h.token: h for h in self._held(num, (o.token for o in batch.outcomes))}
        items: list[bytes] = []
        done: list[int] = []
        dead: list[Move] = []
        for outcome in batch.outcomes:
            found = held.pop(outcome.token, None)
            if found is None:
                continue
            items += outcome.items
            changes.unlease(found)
            if outcome.dead is None:
                done.append(found.id)
                changes.slot(found.slot).done += 1
                changes.counts["done"] += 1
            else:
                dead.append((found.id, DEAD, found.attempts, outcome.dead))
                changes.enter(found.slot, DEAD)
        if done:
            self._db.run("settle", ids=text(done))
        self._move(dead, changes.now)
        return items

    def _release(self, held: list[Held], plan: Plan, changes: Changes) -> None:
        moves: list[Move] = []
        for found in held:
            state = SUSPECT if found.attempts >= plan.suspect_after else WAITING
            moves.append((found.id, state, found.attempts, None))
            changes.unlease(found)
            changes.enter(found.slot, state)
        self._move(moves, changes.now)

    def _move(self, moves: list[Move], now: float) -> None:
        if moves:
            self._db.run("move", moves=text(moves), now=now)

    def _keep(self, batch: Batch, items: list[bytes]) -> None:
        execute = self._db.connection.execute
        for chunk in chunks(items, columns=1):
            execute(f"INSERT INTO item (payload) VALUES {','.join(['(?)'] * len(chunk))}", chunk)
        if batch.stats:
            self._db.run("stats", stats=text(batch.stats))
        for name, value in batch.state.items():
            if value is None:
                execute("DELETE FROM state WHERE name = ?", (name,))
            else:
                execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    # Workers

    def beat(self, worker: str) -> Beat:
        db = self._db
        with db.write():
            num: int = db.worker(worker)["num"]
            crawl = db.crawl()
            now = db.now(crawl)
            db.run("beat", num=num, now=now)
            silent = db.connection.execute(
                "SELECT num FROM worker WHERE deadline <= ? AND num != ?", (now, num)
            ).fetchall()
            reaped = 0
            if silent:
                reaped = self._reap([row["num"] for row in silent], crawl, now)
                crawl = db.crawl()
            seeder, seeding = _seeding(crawl, num)
            db.connection.execute("UPDATE crawl SET seeder = ?, clock = ?", (seeder, now))
            return Beat(counts_of(crawl), seeding, reaped, crawl["mode"])

    def give_up(self, workers: tuple[str, ...]) -> int:
        db = self._db
        with db.write():
            crawl = db.crawl()
            rows = db.connection.execute(
                "SELECT num FROM worker WHERE id IN (SELECT value FROM json_each(?))", (text(workers),)
            ).fetchall()
            return self._reap([row["num"] for row in rows], crawl, db.now(crawl))

    def _reap(self, nums: list[int], crawl: sqlite3.Row, now: float) -> int:
        plan = _decode_plan(crawl["plan"])
        changes = Changes(self._db, crawl, now)
        moves: list[Move] = []
        for num in nums:
            for found in self._held(num, None):
                attempts, state, reason = found.attempts + 1, WAITING, None
                if found.alone and attempts >= plan.max_attempts:
                    state = DEAD
                    reason = (
                        f"its worker died {attempts} times while holding it, the last time with nothing else"
                    )
                elif attempts >= plan.suspect_after:
                    state = SUSPECT
                moves.append((found.id, state, attempts, reason))
                changes.unlease(found)
                changes.enter(found.slot, state)
            self._db.connection.execute("DELETE FROM worker WHERE num = ?", (num,))
        self._move(moves, now)
        seeder = None if crawl["seeder"] in nums else crawl["seeder"]
        changes.write(seeder=seeder, finished=crawl["finished"])
        return len(moves)

    # Observing and controlling

    def snapshot(self, slots: int = 20) -> Snapshot:
        with self._db.read():
            return observing.snapshot(self._db, slots)

    def scan(self, kind: Kind, *, slot: str | None = None, after: int = 0, limit: int = 100) -> list[Row]:
        with self._db.read():
            return observing.scan(self._db, kind, slot, after, limit)

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        with self._db.read():
            return observing.items(self._db, after, limit)

    def control(self, mode: Mode) -> None:
        with self._db.write():
            controlling.set_mode(self._db, mode)

    def clear(self) -> None:
        with self._db.write():
            controlling.clear(self._db)

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        with self._db.write():
            crawl, changes, dead = self._take_dead(ids)
            for found in dead:
                changes.enter(found.slot, WAITING)
            self._move([(found.id, WAITING, 0, None) for found in dead], changes.now)
            changes.write(seeder=crawl["seeder"], finished=crawl["finished"] and not dead)
            return len(dead)

    def drop(self, ids: tuple[int, ...] | None = None) -> int:
        with self._db.write():
            crawl, changes, dead = self._take_dead(ids)
            self._db.run("settle", ids=text([found.id for found in dead]))
            changes.counts["done"] += len(dead)
            changes.write(seeder=crawl["seeder"], finished=crawl["finished"])
            return len(dead)

    def _take_dead(self, ids: tuple[int, ...] | None) -> tuple[sqlite3.Row, Changes, list[Held]]:
        dead = decode_held(self._db.value("dead", ids=None if ids is None else text(ids)))
        crawl = self._db.crawl()
        changes = Changes(self._db, crawl, self._db.now(crawl))
        for found in dead:
            changes.enter(found.slot, DEAD, -1)
        return crawl, changes, dead


def _seeding(crawl: sqlite3.Row, num: int) -> tuple[int | None, Seeding]:
    """Who runs the seeds from now on, and what that is to the worker: nobody's become its own."""
    if crawl["seeded"]:
        return None, Seeding.DONE
    if crawl["seeder"] in (None, num):
        return num, Seeding.MINE
    return crawl["seeder"], Seeding.OTHER
