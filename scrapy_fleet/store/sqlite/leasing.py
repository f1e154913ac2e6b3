"""Who is next: the rule of the store protocol, on SQLite."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

import msgspec

from scrapy_fleet.model import Lease
from scrapy_fleet.store.base import HORIZON, MAX_WANT, PATIENCE
from scrapy_fleet.store.sqlite.changes import SUSPECT, WAITING, Changes, SlotChange, text
from scrapy_fleet.store.sqlite.database import Database

TOKENS_PER_BATCH = 1 << 16

_decode = msgspec.json.Decoder().decode

Pick = tuple[int, float]
"""An entry, and when it may run."""


class Slot(msgspec.Struct, array_like=True):
    """A slot that may be served, as statement ``ready`` gives it."""

    id: int
    served: int
    active: int
    concurrency: int
    delay: float
    jitter: float
    next_at: float
    room: int = 0
    queue: list[tuple[int, int, int]] = []
    """Rank, order and id of its first entries, the best at the end."""
    fetched: int = 0
    taken: int = 0


_decode_slots = msgspec.json.Decoder(list[Slot]).decode


class Leasing:
    """Hands out entries to one worker, inside a transaction."""

    def __init__(self, db: Database, random: Random) -> None:
        self._db = db
        self._random = random

    def lease(
        self, num: int, seq: int, want: int, alone: int | None, suspects: int, changes: Changes
    ) -> tuple[tuple[Lease, ...], int | None]:
        """The leases, and the token that must stay the worker's only one, if there is one."""
        if alone is not None:
            if self._db.value("held", worker=num, tokens=text([alone])) != "[]":
                return (), alone
            alone = None
        self._db.run("wake", due=changes.now + HORIZON)
        picks: list[Pick] | None = None
        if suspects and (row := self._db.run("suspect", due=changes.now + HORIZON).fetchone()) is not None:
            if not self._db.value("SELECT count(*) FROM entry WHERE state = 1 AND worker = :num", num=num):
                alone = seq * TOKENS_PER_BATCH
                slot = Slot(row["slot"], 0, 0, 1, row["delay"], row["jitter"], row["next_at"])
                picks = [(row["id"], self._pace(slot, changes.slot(slot.id), changes.now))]
                changes.turn(slot.id, SUSPECT)
            elif row["at"] <= changes.now - PATIENCE:
                picks = []
        if picks is None:
            picks = self._pick(num, min(want, MAX_WANT), changes)
        if not picks:
            return (), alone
        first = seq * TOKENS_PER_BATCH
        rows = [(entry, first + i, at) for i, (entry, at) in enumerate(picks)]
        self._db.run("lease", worker=num, picks=text(rows), alone=alone is not None)
        return self.leases(num, seq, changes.now), alone

    def _pace(self, slot: Slot, change: SlotChange, now: float) -> float:
        """When the slot's next request may run; the one after it is put off by the slot's delay."""
        at = max(now, slot.next_at)
        if not slot.delay:
            return at
        factor = self._random.uniform(1 - slot.jitter, 1 + slot.jitter) if slot.jitter else 1.0
        slot.next_at = change.next_at = at + slot.delay * factor
        return at

    def _pick(self, num: int, want: int, changes: Changes) -> list[Pick]:
        """Choose entries one by one: of the slot whose first entry ranks best, then served longest ago."""
        slots = self._slots(num, want)
        if not slots:
            return []
        # Few of each slot are needed when there are many slots; more are fetched where they are.
        self._fetch(list(slots.values()), min(want, 4 + 2 * want // len(slots)))
        heap = [(slot.queue[-1][0], slot.served, slot.id) for slot in slots.values() if slot.queue]
        heapq.heapify(heap)
        picks: list[Pick] = []
        while heap and len(picks) < want:
            slot = slots[heapq.heappop(heap)[2]]
            picks.append((slot.queue.pop()[2], self._pace(slot, changes.slot(slot.id), changes.now)))
            slot.taken += 1
            slot.served = changes.turn(slot.id, WAITING)
            slot.room -= 1
            if not slot.queue and slot.taken == slot.fetched:
                self._fetch([slot], want)
            if slot.queue and slot.room and slot.next_at <= changes.now + HORIZON:
                heapq.heappush(heap, (slot.queue[-1][0], slot.served, slot.id))
        return picks

    def _slots(self, num: int, want: int) -> dict[int, Slot]:
        """The slots that may be served, the first ones first, with the room they have for this worker."""
        workers = self._db.value("SELECT count(*) FROM worker")
        mine = dict(_decode(self._db.value("mine", worker=num))) if workers > 1 else {}
        slots: dict[int, Slot] = {}
        for slot in _decode_slots(self._db.value("ready", want=want + len(mine))):
            share = -(-slot.concurrency // workers)
            slot.room = min(slot.concurrency - slot.active, share - mine.get(slot.id, 0))
            if slot.room > 0 and len(slots) < want:
                slots[slot.id] = slot
        return slots

    def _fetch(self, slots: list[Slot], depth: int) -> None:
        """Bring the first ``depth`` entries of slots, less those taken already."""
        found: dict[int, list[tuple[int, int, int]]] = {slot.id: [] for slot in slots}
        for slot_id, rank, order, entry in _decode(
            self._db.value("candidates", slots=text(list(found)), depth=depth)
        ):
            found[slot_id].append((rank, order, entry))
        for slot in slots:
            queue = sorted(found[slot.id], reverse=True)
            slot.queue = queue[: len(queue) - slot.taken]
            slot.fetched = depth if len(queue) == depth and depth > slot.fetched else -1

    def retry_in(self, now: float, suspects: int) -> float | None:
        """Seconds until a slot that waits for its time may be asked again."""
        times = [self._db.value("next_wake", due=now + HORIZON)]
        if suspects:
            times.append(self._db.value("next_suspect_wake", due=now + HORIZON))
        return min((max(0.0, at - HORIZON - now) for at in times if at is not None), default=None)

    def leases(self, num: int, seq: int, now: float) -> tuple[Lease, ...]:
        """The leases of one batch that its worker still holds."""
        first = seq * TOKENS_PER_BATCH
        last = first + TOKENS_PER_BATCH - 1
        rows: list[Any] = _decode(self._db.value("leases", worker=num, first=first, last=last))
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
