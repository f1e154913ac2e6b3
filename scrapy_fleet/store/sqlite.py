"""A crawl in one SQLite file, shared by the workers of one machine. The embedded default.

WAL mode: a killed process loses nothing that was committed; with ``durability="full"`` a power
cut neither. The tables are described in ``schema.sql``, the statements are in ``sqlite.sql``.
"""

from __future__ import annotations

import contextlib
import heapq
import random as random_module
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from scrapy_fleet.errors import GivenUp, StoreAway, StoreError
from scrapy_fleet.model import (
    Batch,
    Beat,
    Counts,
    Joined,
    Kind,
    Lease,
    Plan,
    Receipt,
    Row,
    Seeding,
    SlotView,
    Snapshot,
    Status,
    Worker,
    WorkerView,
)
from scrapy_fleet.store.base import HORIZON, MAX_WANT, PATIENCE

APPLICATION_ID = 0x53464C54
VERSION = 1
OLDEST_SQLITE = (3, 33, 0)
TOKENS_PER_BATCH = 1 << 16
WAITING, LEASED, DEAD, SUSPECT = range(4)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _load(name: str) -> str:
    return files("scrapy_fleet.store").joinpath(name).read_text(encoding="utf-8")


def _statements() -> dict[str, str]:
    blocks = _load("sqlite.sql").split("-- name: ")[1:]
    return {name.strip(): sql.strip() for name, sql in (block.split("\n", 1) for block in blocks)}


SQL = _statements()


class _SlotChange(msgspec.Struct, array_like=True):
    """What a transaction changes of one slot; laid out as statement ``slots`` reads it."""

    id: int
    queued: int = 0
    suspects: int = 0
    leased: int = 0
    active: int = 0
    done: int = 0
    latency: float | None = None
    next_at: float | None = None
    served: int | None = None


class _Changes:
    """Gathers what one transaction changes of the counters, so that each is written once."""

    def __init__(self) -> None:
        self.slots: dict[int, _SlotChange] = {}
        self.counts: Counter[str] = Counter()

    def slot(self, number: int) -> _SlotChange:
        if number not in self.slots:
            self.slots[number] = _SlotChange(number)
        return self.slots[number]

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


class _Held(msgspec.Struct, array_like=True):
    """A leased or dead entry, as statements ``held`` and ``dead`` give it."""

    token: int | None
    slot: int
    busy: int
    attempts: int
    id: int
    alone: int
    latency: float | None


_decode_held = msgspec.json.Decoder(list[_Held]).decode


class SqliteStore:
    """See :class:`scrapy_fleet.store.base.Store` for what each verb means."""

    def __init__(
        self,
        path: str | Path,
        crawl: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: random_module.Random | None = None,
        durability: Literal["full", "normal"] = "full",
        create: bool = True,
    ) -> None:
        self.path = Path(path)
        self.url = f"sqlite:///{self.path.absolute().as_posix().lstrip('/')}"
        self.crawl = crawl
        self._clock = clock
        self._random = random or random_module.Random()
        self._offset = 0.0
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(
                f"Python was built with SQLite {sqlite3.sqlite_version}; {'.'.join(map(str, OLDEST_SQLITE))} "
                "or newer is needed. Use a newer Python, or a Redis store (FLEET_URL)."
            )
        self._db = self._open(create)
        try:
            with self._errors():
                self._prepare(durability)
        except BaseException:
            self._db.close()
            raise

    # Opening

    def _open(self, create: bool) -> sqlite3.Connection:
        if create:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"The folder {self.path.parent} cannot be made: {error.strerror}. "
                    "Name a folder you can write to in FLEET_URL or JOBDIR."
                ) from error
        elif not self.path.exists():
            raise StoreError(f"There is no crawl at {self.path}. Check the name, or FLEET_URL and JOBDIR.")
        with self._errors():
            return sqlite3.connect(
                self.path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
            )

    def _prepare(self, durability: str) -> None:
        db = self._db
        db.row_factory = sqlite3.Row
        if self._value("PRAGMA application_id") != APPLICATION_ID and self._value(
            "SELECT count(*) FROM sqlite_master"
        ):
            raise StoreError(f"{self.path} is a database of another program. Name another file in FLEET_URL.")
        # A damaged file should be told before a crawl, as long as that does not take long.
        if self.path.stat().st_size < 1 << 26 and self._value("PRAGMA quick_check(1)") != "ok":
            raise sqlite3.DatabaseError("malformed")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        db.execute("PRAGMA cache_size = -32768")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA wal_autocheckpoint = 4000")
        with self._write():
            version = self._value("PRAGMA user_version")
            if version == 0:
                for statement in _load("schema.sql").split(";\n"):
                    if statement.strip():
                        db.execute(statement)
                db.execute(
                    "INSERT INTO crawl (one, name, plan, clock) VALUES (1, ?, ?, ?)",
                    (self.crawl, _encode(Plan()).decode(), self._clock()),
                )
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {VERSION}")
            elif version > VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer scrapy-fleet (format {version}, this one knows {VERSION}). "
                    "Upgrade scrapy-fleet, or name another file in FLEET_URL."
                )
            name = self._value("SELECT name FROM crawl")
            if name != self.crawl:
                raise StoreError(
                    f"{self.path} holds the crawl {name!r}, not {self.crawl!r}. One file holds one crawl: "
                    "name a folder in FLEET_URL, or set FLEET_CRAWL."
                )
        db.execute(SQL["incoming"])

    def close(self) -> None:
        self._db.close()

    # Plumbing

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours: what passes is StoreAway, what does not is StoreError."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", "") or ""
            if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise StoreAway(f"{self.path} is locked by another process ({error}).") from error
            if code.startswith("SQLITE_FULL"):
                raise StoreAway(
                    f"The disk of {self.path} is full. Free some space; the crawl goes on."
                ) from error
            if code.startswith("SQLITE_IOERR"):
                raise StoreAway(f"{self.path} cannot be read or written: {error} ({code}).") from error
            if code.startswith("SQLITE_NOTADB"):
                raise StoreError(f"{self.path} is not a database. Name another file in FLEET_URL.") from error
            if code.startswith("SQLITE_CORRUPT") or "malformed" in str(error):
                raise StoreError(
                    f"{self.path} is damaged. Keep a copy, then save what can be read: "
                    f"sqlite3 {self.path} .recover | sqlite3 new.db"
                ) from error
            if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
                raise StoreError(
                    f"{self.path} cannot be opened for writing: {error}. Check the rights of the file and its "
                    "folder, or name another place in FLEET_URL or JOBDIR."
                ) from error
            raise StoreError(f"{self.path}: {error} ({code}).") from error

    @contextlib.contextmanager
    def _write(self) -> Iterator[None]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _value(self, sql: str, **values: object) -> Any:
        return self._db.execute(SQL.get(sql, sql), values).fetchone()[0]

    def _run(self, name: str, **values: object) -> sqlite3.Cursor:
        return self._db.execute(SQL[name], values)

    def _crawl(self) -> sqlite3.Row:
        row: sqlite3.Row = self._db.execute("SELECT * FROM crawl").fetchone()
        self._offset = row["offset"]
        return row

    def _now(self, crawl: sqlite3.Row) -> float:
        """The crawl's time: the machine's monotonic clock, which its processes share, carried over reboots."""
        now = self._clock() + self._offset
        if now < crawl["clock"] - 5:  # the machine was started anew: go on from where we were
            self._offset = crawl["clock"] - self._clock()
            self._db.execute("UPDATE crawl SET offset = ?", (self._offset,))
            now = crawl["clock"]
        return float(now)

    def _worker(self, worker: str) -> sqlite3.Row:
        row: sqlite3.Row | None = self._db.execute("SELECT * FROM worker WHERE id = ?", (worker,)).fetchone()
        if row is None:
            raise GivenUp(f"{worker} was silent for too long and was given up.")
        return row

    def _apply(
        self,
        crawl: sqlite3.Row,
        changes: _Changes,
        now: float,
        *,
        seeder: int | None,
        seeded: bool | None = None,
        finished: bool = False,
    ) -> Counts:
        """Write the gathered counters; what they are now."""
        self._apply_slots(changes, now)
        names = ("accepted", "waiting", "leased", "done", "dead")
        self._run(
            "count",
            **{name: changes.counts[name] for name in (*names, "suspects", "seen", "served")},
            seeded=crawl["seeded"] if seeded is None else seeded,
            seeder=seeder,
            finished=finished,
            now=now,
        )
        return Counts(**{name: crawl[name] + changes.counts[name] for name in names})

    def _apply_slots(self, changes: _Changes, now: float) -> None:
        if changes.slots:
            self._run("slots", deltas=_encode(list(changes.slots.values())).decode(), due=now + HORIZON)
            changes.slots = {}

    # Joining

    def join(self, worker: Worker, plan: Plan, ttl: float) -> Joined:
        with self._write():
            crawl = self._crawl()
            now = self._now(crawl)
            resumed = not crawl["finished"] and crawl["accepted"] > 0
            if crawl["finished"]:
                self._begin_anew(plan.keep_seen)
            self._db.execute("UPDATE crawl SET plan = ?, clock = ?", (_encode(plan).decode(), now))
            self._db.execute("DELETE FROM rule")
            rules = [(name, r.concurrency, r.delay, r.jitter) for name, r in plan.slots.items()]
            self._run("rules", rules=_encode(rules).decode())
            self._run("apply_rules", **msgspec.structs.asdict(plan.rule))
            self._run("apply_phase", due=now + HORIZON)
            self._db.execute(
                "INSERT INTO worker (id, host, pid, home, birth, ttl, joined, deadline) VALUES (?,?,?,?,?,?,?,?) "
                "ON CONFLICT (id) DO UPDATE SET ttl = excluded.ttl, deadline = excluded.deadline",
                (worker.id, worker.host, worker.pid, worker.home, worker.birth, ttl, now, now + ttl),
            )
            num = self._worker(worker.id)["num"]
            crawl = self._crawl()
            seeder, seeding = self._seeding(crawl, num)
            self._db.execute("UPDATE crawl SET seeder = ?", (seeder,))
            others = self._db.execute("SELECT id, host, pid, home, birth FROM worker WHERE num != ?", (num,))
            return Joined(
                run=crawl["run"],
                resumed=resumed,
                counts=_counts(crawl),
                seeding=seeding,
                state={name: value for name, value in self._db.execute("SELECT name, value FROM state")},
                others=tuple(Worker(*row) for row in others),
            )

    def _begin_anew(self, keep_seen: bool) -> None:
        self._run("new_run")
        tables = ["entry", "slot", "stat", "state"]
        if not keep_seen:
            tables.append("seen")
            self._db.execute("UPDATE crawl SET seen = 0")
        for table in tables:
            self._db.execute(f"DELETE FROM {table}")

    @staticmethod
    def _seeding(crawl: sqlite3.Row, num: int) -> tuple[int | None, Seeding]:
        if crawl["seeded"]:
            return None, Seeding.DONE
        if crawl["seeder"] in (None, num):
            return num, Seeding.MINE
        return crawl["seeder"], Seeding.OTHER

    # Committing

    def commit(self, batch: Batch) -> Receipt:
        with self._write():
            worker = self._worker(batch.worker)
            crawl = self._crawl()
            now = self._now(crawl)
            num: int = worker["num"]
            if batch.seq <= worker["seq"]:
                return self._repeat(batch, worker, crawl, now)
            plan = msgspec.json.decode(crawl["plan"], type=Plan)
            changes = _Changes()
            known = self._add(batch, plan, changes) if batch.adds else ()
            if batch.marks:
                changes.counts["seen"] += self._run("mark_keys", keys=_text(batch.marks)).rowcount
            items = list(batch.items)
            if batch.samples:
                self._sample(batch, num, changes)
            if batch.outcomes:
                items += self._settle(batch, num, changes, now)
            if batch.releases or batch.leave:
                tokens = None if batch.leave else batch.releases
                self._release(tokens, num, plan, changes, now)
            seeded = bool(crawl["seeded"])
            seeder, seeding = self._seeding(crawl, num)
            if seeding is Seeding.MINE and (batch.seeded or batch.leave):
                seeder = None
                if batch.seeded:
                    seeded, seeding = True, Seeding.DONE
            self._keep(batch, items)
            leases: tuple[Lease, ...] = ()
            retry_in = None
            alone: int | None = worker["alone"]
            if batch.want and not batch.leave:
                self._apply_slots(changes, now)
                suspects = crawl["suspects"] + changes.counts["suspects"]
                leases, alone = self._lease(batch, crawl, num, alone, suspects, plan, changes, now)
                self._apply_slots(changes, now)
                if len(leases) < batch.want and (at := self._value("next_wake")) is not None:
                    retry_in = max(0.0, at - HORIZON - now)
            open_after = (
                crawl["waiting"] + crawl["leased"] + changes.counts["waiting"] + changes.counts["leased"]
            )
            finished = batch.finish and seeded and not open_after
            counts = self._apply(crawl, changes, now, seeder=seeder, seeded=seeded, finished=finished)
            if batch.leave:
                self._db.execute("DELETE FROM worker WHERE num = ?", (num,))
            else:
                self._run("worker", num=num, now=now, seq=batch.seq, known=_text(known), alone=alone)
            return Receipt(counts, seeding, leases, known, retry_in)

    def _repeat(self, batch: Batch, worker: sqlite3.Row, crawl: sqlite3.Row, now: float) -> Receipt:
        _, seeding = self._seeding(crawl, worker["num"])
        latest = batch.seq == worker["seq"]
        leases = self._leases(worker["num"], batch.seq, now) if latest else ()
        known = tuple(_decode(worker["known"])) if latest else ()
        self._db.execute("UPDATE worker SET deadline = ? + ttl WHERE num = ?", (now, worker["num"]))
        return Receipt(_counts(crawl), seeding, leases, known)

    def _add(self, batch: Batch, plan: Plan, changes: _Changes) -> tuple[int, ...]:
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
        for chunk in _chunks(rows, columns=5):
            places = ",".join(["(?,?,?,?,?)"] * (len(chunk) // 5))
            self._db.execute(f"INSERT INTO incoming VALUES {places}", chunk)
        seen: list[int] = _decode(self._value("known")) if keys else []
        if seen:
            self._run("forget_known", known=_text(seen))
            known = sorted(known + seen)
        accepted = len(batch.adds) - len(known)
        if accepted:
            self._run("mark_incoming")
            self._run("new_slots", **msgspec.structs.asdict(plan.rule))
            self._run("queue_incoming", lifo=plan.lifo)
            for slot, n in _decode(self._value("incoming_by_slot")):
                changes.enter(slot, WAITING, n)
        self._run("clear_incoming")
        changes.counts["accepted"] += accepted
        changes.counts["seen"] += len(keys) - len(seen)
        return tuple(known)

    def _held(self, num: int, tokens: Iterable[int] | None) -> list[_Held]:
        if tokens is None:
            return _decode_held(self._value("held_all", worker=num))
        return _decode_held(self._value("held", worker=num, tokens=_text(list(tokens))))

    def _sample(self, batch: Batch, num: int, changes: _Changes) -> None:
        held = {h.token: h for h in self._held(num, (s.token for s in batch.samples)) if h.busy}
        latencies = {h.slot: h.latency for h in held.values()}
        freed: list[int] = []
        for sample in batch.samples:
            found = held.pop(sample.token, None)
            if found is None:
                continue
            freed.append(found.id)
            changes.slot(found.slot).active -= 1
            if sample.latency is not None:
                old = latencies[found.slot]
                new = sample.latency if old is None else 0.7 * old + 0.3 * sample.latency
                latencies[found.slot] = changes.slot(found.slot).latency = new
        self._run("free", ids=_text(freed))

    def _settle(self, batch: Batch, num: int, changes: _Changes, now: float) -> list[bytes]:
        """Settle the outcomes; the items of those that were held."""
        held = {h.token: h for h in self._held(num, (o.token for o in batch.outcomes))}
        items: list[bytes] = []
        done: list[int] = []
        dead: list[tuple[object, ...]] = []
        for outcome in batch.outcomes:
            found = held.pop(outcome.token, None)
            if found is None:
                continue
            items += outcome.items
            changes.slot(found.slot).active -= found.busy
            changes.enter(found.slot, LEASED, -1)
            if outcome.dead is None:
                done.append(found.id)
                changes.slot(found.slot).done += 1
                changes.counts["done"] += 1
            else:
                dead.append((found.id, DEAD, found.attempts, outcome.dead))
                changes.enter(found.slot, DEAD)
        if done:
            self._run("settle", ids=_text(done))
        if dead:
            self._run("move", moves=_text(dead), now=now)
        return items

    def _release(
        self, tokens: Sequence[int] | None, num: int, plan: Plan, changes: _Changes, now: float
    ) -> None:
        moves = []
        for found in self._held(num, tokens):
            state = SUSPECT if found.attempts >= plan.suspect_after else WAITING
            moves.append((found.id, state, found.attempts, None))
            changes.slot(found.slot).active -= found.busy
            changes.enter(found.slot, LEASED, -1)
            changes.enter(found.slot, state)
        if moves:
            self._run("move", moves=_text(moves), now=now)

    def _keep(self, batch: Batch, items: list[bytes]) -> None:
        for chunk in _chunks(items, columns=1):
            places = ",".join(["(?)"] * len(chunk))
            self._db.execute(f"INSERT INTO item (payload) VALUES {places}", chunk)
        if batch.stats:
            self._run("stats", stats=_encode(batch.stats).decode())
        for name, value in batch.state.items():
            if value is None:
                self._db.execute("DELETE FROM state WHERE name = ?", (name,))
            else:
                self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    # Leasing

    def _lease(
        self,
        batch: Batch,
        crawl: sqlite3.Row,
        num: int,
        alone: int | None,
        suspects: int,
        plan: Plan,
        changes: _Changes,
        now: float,
    ) -> tuple[tuple[Lease, ...], int | None]:
        """Hand out entries; also the token that must stay the worker's only one, if any."""
        if alone is not None:
            if self._held(num, (alone,)):
                return (), alone
            alone = None
        self._run("wake", due=now + HORIZON)
        picks: list[tuple[int, float]] | None = None
        if suspects:
            row = self._run("suspect", due=now + HORIZON).fetchone()
            if row is not None:
                if not self._held(num, None):
                    alone = batch.seq * TOKENS_PER_BATCH
                    picks = [(row["id"], self._pace(row, changes.slot(row["slot"]), now))]
                    changes.counts["served"] += 1
                    changes.slot(row["slot"]).served = crawl["served"] + 1
                    changes.slot(row["slot"]).active += 1
                    changes.enter(row["slot"], SUSPECT, -1)
                    changes.enter(row["slot"], LEASED)
                elif row["at"] <= now - PATIENCE:
                    picks = []
        if picks is None:
            picks = self._pick(min(batch.want, MAX_WANT), crawl["served"], plan, changes, now)
        if not picks:
            return (), alone
        first = batch.seq * TOKENS_PER_BATCH
        rows = [(entry, first + i, at) for i, (entry, at) in enumerate(picks)]
        self._run("lease", worker=num, picks=_text(rows), alone=alone is not None)
        return self._leases(num, batch.seq, now), alone

    def _pace(self, slot: Any, change: _SlotChange, now: float) -> float:
        """When the slot's next request may run; the one after it is put off by the slot's delay."""
        delay, jitter = slot["delay"], slot["jitter"]
        if not delay:
            return now
        at: float = max(now, slot["next_at"] if change.next_at is None else change.next_at)
        factor = self._random.uniform(1 - jitter, 1 + jitter) if jitter else 1.0
        change.next_at = at + delay * factor
        return at

    def _pick(
        self, want: int, served: int, plan: Plan, changes: _Changes, now: float
    ) -> list[tuple[int, float]]:
        """Choose entries by the rule of the protocol; (entry, when it may run) in the order of choice."""
        names = ("served", "room", "delay", "jitter", "next_at")
        slots = {
            row[0]: dict(zip(names, row[1:], strict=True)) for row in _decode(self._value("ready", want=want))
        }
        if not slots:
            return []
        depth = min(want, max(slot["room"] for slot in slots.values()))
        queues: dict[int, list[tuple[int, int, int]]] = {slot: [] for slot in slots}
        for slot, *key in _decode(self._value("candidates", slots=_text(list(slots)), depth=depth)):
            queues[slot].append((key[0], key[1], key[2]))
        heap = []
        for number, queue in queues.items():
            queue.sort(reverse=True)
            if queue:
                heap.append((queue[-1][0], slots[number]["served"], number))
        heapq.heapify(heap)
        picks: list[tuple[int, float]] = []
        while heap and len(picks) < want:
            _, _, number = heapq.heappop(heap)
            slot, queue, change = slots[number], queues[number], changes.slot(number)
            picks.append((queue.pop()[2], self._pace(slot, change, now)))
            change.active += 1
            change.served = slot["served"] = served + len(picks)
            changes.enter(number, WAITING, -1)
            changes.enter(number, LEASED)
            slot["room"] -= 1
            due = change.next_at is None or change.next_at <= now + HORIZON
            if queue and slot["room"] and due:
                heapq.heappush(heap, (queue[-1][0], slot["served"], number))
        changes.counts["served"] += len(picks)
        return picks

    def _leases(self, num: int, seq: int, now: float) -> tuple[Lease, ...]:
        first = seq * TOKENS_PER_BATCH
        rows = _decode(self._value("leases", worker=num, first=first, last=first + TOKENS_PER_BATCH - 1))
        return tuple(
            Lease(
                token=token,
                slot=slot,
                payload=bytes.fromhex(payload),
                priority=((rank & 1) - rank) // 2,
                seed=bool(rank & 1),
                attempts=attempts,
                delay=max(0.0, at - now),
                alone=bool(alone),
            )
            for token, slot, rank, attempts, at, alone, payload in rows
        )

    # Workers

    def beat(self, worker: str) -> Beat:
        with self._write():
            row = self._worker(worker)
            crawl = self._crawl()
            now = self._now(crawl)
            self._db.execute("UPDATE worker SET deadline = ? + ttl WHERE num = ?", (now, row["num"]))
            silent = self._db.execute(
                "SELECT num FROM worker WHERE deadline <= ? AND num != ?", (now, row["num"])
            ).fetchall()
            seeder: int | None = crawl["seeder"]
            counts, reaped = _counts(crawl), 0
            if silent:
                counts, reaped, seeder = self._reap([r["num"] for r in silent], crawl, now)
            else:
                self._db.execute("UPDATE crawl SET clock = ?", (now,))
            if not crawl["seeded"] and seeder is None:
                seeder = row["num"]
                self._db.execute("UPDATE crawl SET seeder = ?", (seeder,))
            seeding = Seeding.OTHER if seeder != row["num"] else Seeding.MINE
            return Beat(counts, Seeding.DONE if crawl["seeded"] else seeding, reaped)

    def give_up(self, workers: tuple[str, ...]) -> int:
        with self._write():
            crawl = self._crawl()
            rows = self._db.execute(
                "SELECT num FROM worker WHERE id IN (SELECT value FROM json_each(?))", (_text(workers),)
            ).fetchall()
            return self._reap([row["num"] for row in rows], crawl, self._now(crawl))[1]

    def _reap(self, nums: list[int], crawl: sqlite3.Row, now: float) -> tuple[Counts, int, int | None]:
        plan = msgspec.json.decode(crawl["plan"], type=Plan)
        changes = _Changes()
        moves: list[tuple[object, ...]] = []
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
                changes.slot(found.slot).active -= found.busy
                changes.enter(found.slot, LEASED, -1)
                changes.enter(found.slot, state)
            self._db.execute("DELETE FROM worker WHERE num = ?", (num,))
        if moves:
            self._run("move", moves=_text(moves), now=now)
        seeder = None if crawl["seeder"] in nums else crawl["seeder"]
        counts = self._apply(crawl, changes, now, seeder=seeder, finished=crawl["finished"])
        return counts, len(moves), seeder

    # Observing

    def snapshot(self, slots: int = 20) -> Snapshot:
        with self._errors():
            self._db.execute("BEGIN")
            try:
                return self._snapshot(slots)
            finally:
                self._db.execute("ROLLBACK")

    def _snapshot(self, slots: int) -> Snapshot:
        crawl = self._crawl()
        now = max(self._clock() + self._offset, crawl["clock"])
        workers = tuple(
            WorkerView(r["id"], r["host"], r["pid"], r["leased"], now - r["joined"], r["deadline"] - now)
            for r in self._run("workers")
        )
        status: Status = "running" if crawl["seeded"] else "seeding"
        if crawl["finished"]:
            status = "finished"
        elif not workers:
            begun = crawl["accepted"] or self._value(
                "SELECT count(*) FROM sqlite_sequence WHERE name = 'worker'"
            )
            status = "stopped" if begun else "new"
        views = tuple(
            SlotView(
                name=r["name"],
                waiting=r["waiting"],
                leased=r["leased"],
                done=r["done"],
                delay=r["delay"],
                concurrency=r["concurrency"],
                latency=r["latency"],
                next_in=max(0.0, r["next_at"] - now),
            )
            for r in self._run("busiest", n=slots)
        )
        return Snapshot(
            crawl=self.crawl,
            run=crawl["run"],
            status=status,
            counts=_counts(crawl),
            seen=crawl["seen"],
            items=self._value("SELECT count(*) FROM item"),
            slot_count=self._value("SELECT count(*) FROM slot"),
            slots=views,
            workers=workers,
            stats={r["name"]: r["value"] for r in self._db.execute("SELECT name, value FROM stat")},
        )

    def scan(self, kind: Kind, *, slot: str | None = None, after: int = 0, limit: int = 100) -> list[Row]:
        states = {"waiting": [WAITING, SUSPECT], "leased": [LEASED], "dead": [DEAD]}[kind]
        with self._errors():
            if kind == "waiting" and slot is not None:
                rows = self._run("scan_slot", slot=slot, after=after, limit=limit).fetchall()
            else:
                rows = self._run("scan", states=_text(states), slot=slot, after=after, limit=limit).fetchall()
        return [
            Row(
                id=r["id"],
                slot=r["name"],
                priority=((r["rank"] & 1) - r["rank"]) // 2,
                seed=bool(r["rank"] & 1),
                attempts=r["attempts"],
                payload=r["payload"],
                worker=r["worker_id"],
                reason=r["reason"],
            )
            for r in rows
        ]

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        with self._errors():
            rows = self._db.execute(
                "SELECT id, payload FROM item WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
            )
            return [(r["id"], r["payload"]) for r in rows]

    # Controlling

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        with self._write():
            crawl, changes, dead = self._take_dead(ids)
            moves = [(found.id, WAITING, 0, None) for found in dead]
            for found in dead:
                changes.enter(found.slot, WAITING)
            now = self._now(crawl)
            self._run("move", moves=_text(moves), now=now)
            finished = crawl["finished"] and not dead
            self._apply(crawl, changes, now, seeder=crawl["seeder"], finished=finished)
            return len(dead)

    def drop(self, ids: tuple[int, ...] | None = None) -> int:
        with self._write():
            crawl, changes, dead = self._take_dead(ids)
            self._run("settle", ids=_text([found.id for found in dead]))
            changes.counts["done"] += len(dead)
            self._apply(crawl, changes, self._now(crawl), seeder=crawl["seeder"], finished=crawl["finished"])
            return len(dead)

    def _take_dead(self, ids: tuple[int, ...] | None) -> tuple[sqlite3.Row, _Changes, list[_Held]]:
        dead = _decode_held(self._value("dead", ids=None if ids is None else _text(ids)))
        changes = _Changes()
        for found in dead:
            changes.enter(found.slot, DEAD, -1)
        return self._crawl(), changes, dead


def _counts(crawl: sqlite3.Row) -> Counts:
    return Counts(*(crawl[name] for name in ("accepted", "waiting", "leased", "done", "dead")))


def _text(values: Sequence[object]) -> str:
    return _encode(values).decode()


def _chunks(values: list[Any], columns: int) -> Iterator[list[Any]]:
    """Cut into chunks of 256, 128, ... rows, so that few statements serve every size."""
    start, rows = 0, 256
    while start < len(values):
        while rows * columns > len(values) - start:
            rows //= 2
        yield values[start : start + rows * columns]
        start += rows * columns
