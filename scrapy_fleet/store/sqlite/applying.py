"""What a batch does to entries: they are added, sampled, settled and released."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from scrapy_fleet.model import Batch, Entry, Notice, Outcome, Plan, Sample, Start
from scrapy_fleet.politeness import REFUSALS
from scrapy_fleet.store.sqlite.changes import (
    DEAD,
    OVER,
    RUNNING,
    SPARE,
    SUSPECT,
    WAITING,
    Changes,
    Held,
    HeldIn,
    chunks,
    decode_held,
    decode_slots,
    text,
)
from scrapy_fleet.store.sqlite.database import Database
from scrapy_fleet.store.sqlite.seen import EXACT, meet, plan_of
from scrapy_fleet.store.sqlite.treating import Treating, treatment_of

LATENCY_WEIGHT = 0.3

_decode = msgspec.json.Decoder().decode

Move = tuple[int, int, int, str | None]
"""An entry, its new state and attempts, and why it is dead; as statement ``move`` reads it."""


class Applying:
    """One transaction's changes to entries."""

    def __init__(self, db: Database, plan: Plan, changes: Changes) -> None:
        self._db = db
        self._plan = plan
        self._changes = changes

    def add(self, entries: tuple[Entry, ...], crawl: sqlite3.Row) -> tuple[int, ...]:
        """Queue what is new; the positions of what is not."""
        db, changes = self._db, self._changes
        known = (
            self._receive_exact(entries) if plan_of(crawl).kind in EXACT else self._receive(entries, crawl)
        )
        accepted = len(entries) - len(known)
        if accepted:
            db.run("new_slots", **treatment_of(self._plan))
            db.run("queue_incoming", lifo=self._plan.lifo)
            for slot, n in _decode(db.value("incoming_by_slot")):
                changes.enter(slot, WAITING, n)
        db.run("clear_incoming")
        changes.counts["accepted"] += accepted
        return tuple(known)

    def _receive_exact(self, entries: tuple[Entry, ...]) -> list[int]:
        """Table ``incoming`` has what is new, whose keys are marked; the positions of what is not."""
        db = self._db
        known: list[int] = []
        rows: list[object] = []
        keys: set[int] = set()
        for pos, entry in enumerate(entries):
            if entry.key in keys:
                known.append(pos)
                continue
            if entry.key is not None:
                keys.add(entry.key)
            rows += (pos, entry.key, entry.slot, entry.rank, entry.payload)
        self._write_incoming(rows)
        seen: list[int] = _decode(db.value("known")) if keys else []
        if seen:
            db.run("forget_known", known=text(seen))
            known = sorted(known + seen)
        if keys:
            db.run("mark_incoming")
        self._changes.counts["seen"] += len(keys) - len(seen)
        return known

    def _receive(self, entries: tuple[Entry, ...], crawl: sqlite3.Row) -> list[int]:
        """The same, by another filter."""
        keyed = [(pos, entry.key) for pos, entry in enumerate(entries) if entry.key is not None]
        met = meet(self._db, crawl, [key for _, key in keyed])
        self._changes.counts["seen"] += met.grown
        known = [keyed[at][0] for at in met.known]
        passed = set(known)
        rows: list[object] = []
        for pos, entry in enumerate(entries):
            if pos not in passed:
                rows += (pos, None, entry.slot, entry.rank, entry.payload)
        self._write_incoming(rows)
        return known

    def _write_incoming(self, rows: list[object]) -> None:
        for chunk in chunks(rows, columns=5):
            places = ",".join(["(?,?,?,?,?)"] * (len(chunk) // 5))
            self._db.connection.execute(f"INSERT INTO incoming VALUES {places}", chunk)

    def held(self, num: int) -> list[Held]:
        """All that a worker holds."""
        return decode_held(self._db.value("held_all", worker=num))

    def end(self, batch: Batch, num: int) -> list[bytes]:
        """Take starts, samples, notices, outcomes and releases; the items of outcomes that were held."""
        samples, outcomes = batch.samples, batch.outcomes
        ended = [sample.token for sample in samples]
        ended += [sample.then for sample in samples if sample.then is not None]
        tokens = [*ended, *(start.token for start in batch.starts), *(outcome.token for outcome in outcomes)]
        tokens += batch.releases
        items: list[bytes] = []
        lessons: dict[int, list[Sample | Notice]] = {}
        if tokens:
            entries, slots = self._db.run("held", worker=num, tokens=text(tokens)).fetchone()
            held = {found.token: found for found in decode_held(entries)}
            met = {slot.id: slot for slot in decode_slots(slots)}
            self._begin(batch.starts, held, met)
            if samples:
                lessons = self._sample(samples, held, met)
            items = self._settle(outcomes, held)
            released = [held.pop(token) for token in batch.releases if token in held]
            self._give_back(released, met)
            self.release(released)
            busy = [(held[token].id, held[token].busy) for token in ended if token in held]
            if busy:
                self._db.run("busy", busy=text(busy))
        if batch.notices:
            self._notice(batch.notices, lessons)
        if lessons:
            Treating(self._db, self._plan, self._changes).learn(lessons)
        return items

    def _begin(
        self, starts: tuple[Start, ...], held: dict[int | None, Held], slots: dict[int, HeldIn]
    ) -> None:
        """Give back what was not needed of the leeway of slots, and take what was needed more."""
        for start in starts:
            found = held.get(start.token)
            slot = None if found is None else slots[found.slot]
            if found is None or slot is None or not slot.leeway or slot.newest != found.at:
                continue
            late = min(start.late, max(slot.leeway, self._changes.now - found.at))
            self._reserve(slot, slot.next_at + (late - slot.leeway))

    def _give_back(self, released: list[Held], slots: dict[int, HeldIn]) -> None:
        """Slots whose newest leases will not begin are free when they were for these."""
        for found in released:
            slot = slots[found.slot]
            if found.at is not None and found.busy == RUNNING and slot.leeway and slot.newest == found.at:
                self._reserve(slot, found.at)

    def _reserve(self, slot: HeldIn, until: float) -> None:
        """It is known when its newest lease began, and how long it is reserved for that."""
        change = self._changes.slot(slot.id)
        change.next_at, change.leeway = until, 0.0
        slot.leeway = 0.0
        if slot.held_until is not None:
            change.due_at = max(until, slot.held_until)

    def _sample(
        self,
        samples: tuple[Sample, ...],
        held: dict[int | None, Held],
        slots: dict[int, HeldIn],
    ) -> dict[int, list[Sample | Notice]]:
        """Free the room of downloads that are over; the samples of slots whose manners may change."""
        auto = self._plan.auto is not None
        telling = {id for id, slot in slots.items() if slot.mannered or auto}
        ended: list[tuple[int, Sample]] = []
        for sample in samples:
            found = held.get(sample.token)
            if found is None or found.busy != RUNNING:
                continue
            found.busy = OVER
            slot = slots[found.slot]
            change = self._changes.slot(slot.id)
            heir = None if sample.then is None else held.get(sample.then)
            if heir is not None and heir.busy == SPARE and heir.slot == slot.id:
                heir.busy = RUNNING
            else:
                change.active -= 1
            if sample.latency is not None:
                old = slot.latency
                new = sample.latency if old is None else old + LATENCY_WEIGHT * (sample.latency - old)
                slot.latency = change.latency = new
            ended.append((slot.id, sample))
            if sample.failed or sample.status in REFUSALS:
                telling.add(slot.id)
        lessons: dict[int, list[Sample | Notice]] = {}
        if telling:
            for id, sample in ended:
                if id in telling:
                    lessons.setdefault(id, []).append(sample)
        return lessons

    def _notice(self, notices: tuple[Notice, ...], lessons: dict[int, list[Sample | Notice]]) -> None:
        """Add what was learnt otherwise; slots that were not met are made."""
        names = text(list(dict.fromkeys(notice.slot for notice in notices)))
        self._db.run("noticed_slots", names=names, **treatment_of(self._plan))
        ids = dict(_decode(self._db.value("slot_ids", names=names)))
        for notice in notices:
            lessons.setdefault(ids[notice.slot], []).append(notice)

    def _settle(self, outcomes: tuple[Outcome, ...], held: dict[int | None, Held]) -> list[bytes]:
        """Settle the outcomes; the items of those that were held."""
        changes = self._changes
        items: list[bytes] = []
        done: list[int] = []
        dead: list[Move] = []
        for outcome in outcomes:
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
        self._move(dead)
        return items

    def release(self, held: list[Held]) -> None:
        """They wait again, as they did."""
        moves: list[Move] = []
        for found in held:
            state = SUSPECT if found.attempts >= self._plan.suspect_after else WAITING
            moves.append((found.id, state, found.attempts, None))
            self._changes.unlease(found)
            self._changes.enter(found.slot, state)
        self._move(moves)

    def bury(self, held: list[Held]) -> None:
        """Their worker has died."""
        plan, changes = self._plan, self._changes
        moves: list[Move] = []
        for found in held:
            attempts, state, reason = found.attempts + 1, WAITING, None
            if found.alone and attempts >= plan.max_attempts:
                state = DEAD
                reason = f"its worker died {attempts} times while holding it, the last time with nothing else"
            elif attempts >= plan.suspect_after:
                state = SUSPECT
            moves.append((found.id, state, attempts, reason))
            changes.unlease(found)
            changes.enter(found.slot, state)
        self._move(moves)

    def take_dead(self, ids: tuple[int, ...] | None) -> list[Held]:
        """These (all, if None) are dead no more."""
        dead = decode_held(self._db.value("dead", ids=None if ids is None else text(ids)))
        for found in dead:
            self._changes.enter(found.slot, DEAD, -1)
        return dead

    def raise_dead(self, dead: list[Held]) -> None:
        """They wait again, as if they were new, and their slots get a new chance."""
        for found in dead:
            self._changes.enter(found.slot, WAITING)
        self._move([(found.id, WAITING, 0, None) for found in dead])
        slots = {found.slot for found in dead}
        Treating(self._db, self._plan, self._changes).pardon(slots)

    def _move(self, moves: list[Move]) -> None:
        if moves:
            self._db.run("move", moves=text(moves), now=self._changes.now)

    def keep(self, batch: Batch, items: list[bytes]) -> None:
        """Keep items, stats and state."""
        execute: Any = self._db.connection.execute
        for chunk in chunks(items, columns=1):
            execute(f"INSERT INTO item (payload) VALUES {','.join(['(?)'] * len(chunk))}", chunk)
        if batch.stats:
            self._db.run("stats", stats=text(batch.stats))
        for name, value in batch.state.items():
            if value is None:
                execute("DELETE FROM state WHERE name = ?", (name,))
            else:
                execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))
