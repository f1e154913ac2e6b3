"""Who is next: the rule of the store protocol, on SQLite."""

from __future__ import annotations

import heapq
import math
from random import Random
from typing import Any

import msgspec

from scrapy_fleet.model import TASKS, Lease, Plan
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import HORIZON, MAX_WANT, PATIENCE
from scrapy_fleet.store.sqlite.changes import SPARE, SUSPECT, WAITING, Changes, SlotChange, text
from scrapy_fleet.store.sqlite.database import Database
from scrapy_fleet.store.sqlite.treating import treatment_of

TOKENS_PER_BATCH = 1 << 16

_decode = msgspec.json.Decoder().decode

Pick = tuple[int, float]
"""An entry, and when it may run."""


class Slot(msgspec.Struct, array_like=True):
    """A slot that may be served, as statements ``ready`` and ``mine`` give it."""

    id: int
    served: int
    active: int
    concurrency: int
    delay: float
    jitter: float
    pace: float
    due_at: float
    boost: int
    calm: int
    """Nothing forbids spares but its delay."""
    running: int = 0
    """How many downloads the worker had running there, and how many spares it had; ``mine`` alone says so."""
    spares: int = 0
    room: int = 0
    """How many more the worker may get."""
    queue: list[tuple[int, int, int]] = []
    """Rank, order and id of its first entries, the best at the end."""
    fetched: int = 0
    """How many of its entries are known, if there are more."""
    taken: int = 0
    opens_at: float = -math.inf
    """When it may be served again, once it was."""

    def share(self, workers: int) -> int:
        return -(-self.concurrency // workers)

    @property
    def most(self) -> int:
        """How many its delay lets it give at a time."""
        if not self.delay or not self.pace:
            return self.concurrency
        return 1 if leeway_of(self.pace) else 2 + int(HORIZON / self.pace)

    def turn(self) -> tuple[int, int, int]:
        return self.queue[-1][0] - 2 * self.boost, self.served, self.id


_decode_slots = msgspec.json.Decoder(list[Slot]).decode


class Leasing:
    """Hands out entries to one worker, inside a transaction."""

    def __init__(self, db: Database, random: Random) -> None:
        self._db = db
        self._random = random
        self._crowded = True
        """So many leases of slots were in hand, the last time, that it counted whose they are."""

    def lease(
        self, num: int, seq: int, want: int, alone: int | None, suspects: int, plan: Plan, changes: Changes
    ) -> tuple[tuple[Lease, ...], int | None]:
        """The leases, and the token that must stay the worker's only one, if there is one."""
        if alone is not None:
            if self._db.value("held", worker=num, tokens=text([alone])) != "[]":
                return (), alone
            alone = None
        self._db.run("wake", now=changes.now)
        picks: list[Pick] | None = None
        running = 1
        if suspects and (row := self._db.run("suspect", now=changes.now).fetchone()) is not None:
            if not self._db.value("SELECT count(*) FROM entry WHERE state = 1 AND worker = :num", num=num):
                alone = seq * TOKENS_PER_BATCH
                slot = Slot(
                    row["slot"], 0, 0, 1, row["delay"], row["jitter"], row["pace"], row["due_at"], 0, 0
                )
                picks = [(row["id"], self._pace(slot, changes.slot(slot.id), changes.now))]
                changes.turn(slot.id, SUSPECT)
            elif row["at"] <= changes.now - PATIENCE:
                picks = []
        if picks is None:
            picks, running = self._pick(num, min(want, MAX_WANT), plan, changes)
        if not picks:
            return (), alone
        first = seq * TOKENS_PER_BATCH
        rows = [(entry, first + i, at) for i, (entry, at) in enumerate(picks)]
        self._db.run("lease", worker=num, picks=text(rows), alone=alone is not None, spares=first + running)
        return self.leases(num, seq, changes.now), alone

    def _pace(self, slot: Slot, change: SlotChange, now: float) -> float:
        """When the slot's next request may run; the one after it is put off by the slot's delay."""
        at = max(now, slot.due_at)
        if not slot.delay:
            return at
        factor = self._random.uniform(1 - slot.jitter, 1 + slot.jitter) if slot.jitter else 1.0
        change.newest, change.leeway = at, leeway_of(slot.pace)
        slot.due_at = at + max(slot.pace, slot.delay * factor) + change.leeway
        change.next_at = change.due_at = slot.due_at
        slot.opens_at = slot.due_at if change.leeway else slot.due_at - HORIZON
        return at

    def _pick(self, num: int, want: int, plan: Plan, changes: Changes) -> tuple[list[Pick], int]:
        """Choose entries; how many of them may run, and are not spare."""
        workers, unpaced = self._db.run("crowd", tasks=TASKS).fetchone()
        mine = self._mine(num) if workers > 1 and self._crowded else None
        slots = self._ready(want, workers, mine or {})
        if workers > 1 and self._crowded and mine is None:
            mine = self._mine(num)
            slots = self._ready(want, workers, mine)
        picks = self._serve(slots, want, changes)
        running = len(picks)
        if running < want and (unpaced or not treatment_of(plan)["delay"]):
            if mine is None:
                mine = self._mine(num)
            spare = self._with_spares(mine, slots, workers, changes.now)
            picks += self._serve(spare, want - running, changes, spare=True)
        return picks, running

    def _mine(self, num: int) -> dict[int, Slot]:
        """The slots in which the worker has downloads running, or spares, and where others wait."""
        return {slot.id: slot for slot in _decode_slots(self._db.value("mine", worker=num))}

    def _ready(self, want: int, workers: int, mine: dict[int, Slot]) -> dict[int, Slot]:
        """The slots that may be served, the first ones first, with the room they have for this worker."""
        slots: dict[int, Slot] = {}
        self._crowded = False
        for slot in _decode_slots(self._db.value("ready", want=want + len(mine))):
            running = mine[slot.id].running if slot.id in mine else 0
            share, most = slot.share(workers), slot.most
            self._crowded |= slot.active > 0 and share - slot.active < min(most, want)
            slot.room = min(slot.concurrency - slot.active, share - running, most)
            if slot.room > 0 and len(slots) < want:
                slots[slot.id] = slot
        return slots

    def _with_spares(
        self, mine: dict[int, Slot], served: dict[int, Slot], workers: int, now: float
    ) -> dict[int, Slot]:
        """The slots of which the worker may have spares: as many as it has downloads running there."""
        slots: dict[int, Slot] = {}
        for id, slot in {**mine, **served}.items():
            if not slot.calm or slot.delay or slot.due_at > now:
                continue
            before = mine.get(id)
            running = slot.taken + (before.running if before else 0)
            slot.room = running - (before.spares if before else 0)
            if slot.room > 0 and running <= slot.share(workers):
                slots[id] = slot
        return slots

    def _serve(
        self, slots: dict[int, Slot], want: int, changes: Changes, *, spare: bool = False
    ) -> list[Pick]:
        """Choose entries one by one: of the slot whose first entry ranks best, then served longest ago."""
        if not slots:
            return []
        # Few of each slot are needed when there are many slots; more are fetched where they are.
        unknown = [slot for slot in slots.values() if not slot.queue and slot.taken == slot.fetched]
        if unknown:
            room = max(min(slot.room, want) for slot in unknown)
            taken = max(slot.taken for slot in unknown)
            self._fetch(unknown, taken + min(room, 4 + 2 * want // len(slots)))
        heap = [slot.turn() for slot in slots.values() if slot.queue]
        heapq.heapify(heap)
        picks: list[Pick] = []
        while heap and len(picks) < want:
            slot = slots[heapq.heappop(heap)[2]]
            picks.append((slot.queue.pop()[2], self._pace(slot, changes.slot(slot.id), changes.now)))
            slot.taken += 1
            slot.served = changes.turn(slot.id, WAITING, spare=spare)
            slot.room -= 1
            if not slot.room or slot.opens_at > changes.now:
                continue
            if not slot.queue and slot.taken == slot.fetched:
                self._fetch([slot], slot.taken + min(slot.room, want - len(picks)))
            if slot.queue:
                heapq.heappush(heap, slot.turn())
        return picks

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
        times = [self._db.value("next_wake", now=now)]
        if suspects:
            times.append(self._db.value("next_suspect_wake", now=now))
        return min((max(0.0, at - now) for at in times if at is not None), default=None)

    def leases(self, num: int, seq: int, now: float) -> tuple[Lease, ...]:
        """The leases of one batch that its worker still holds."""
        first = seq * TOKENS_PER_BATCH
        last = first + TOKENS_PER_BATCH - 1
        entries, slots = self._db.run("leases", worker=num, first=first, last=last).fetchone()
        about: dict[int, list[Any]] = {slot[0]: slot for slot in _decode(slots)}
        leases: list[Lease] = []
        for token, slot, rank, attempts, at, alone, busy, payload in _decode(entries):
            _, name, pace, probed, lost = about[slot]
            leases.append(
                Lease(
                    token=token,
                    slot=name,
                    payload=bytes.fromhex(payload),
                    priority=((rank & 1) - rank) // 2,
                    seed=bool(rank & 1),
                    attempts=attempts,
                    delay=at - now,
                    alone=bool(alone),
                    pace=pace,
                    spare=busy == SPARE,
                    probe=bool(probed),
                    lost=lost or "",
                )
            )
        return tuple(leases)
