"""Who gets what: how the store in memory hands out leases."""

from __future__ import annotations

import heapq
import itertools
import random as random_module
from collections import Counter
from collections.abc import Callable, Collection

from scrapy_fleet.model import Lease
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import PATIENCE
from scrapy_fleet.store.memory_records import Hold, Kept, Member, Slot

TOKENS_IN_BATCH = 65536


class Leasing:
    """Chooses among slots, and remembers whose turn it was."""

    def __init__(self, random: random_module.Random) -> None:
        self._random = random
        self._turns = itertools.count(1)

    def hand_out(
        self, member: Member, slots: Collection[Slot], workers: int, want: int, now: float
    ) -> list[int]:
        """The tokens of up to ``want`` new leases, which the member now holds."""
        if any(hold.alone for hold in member.holds.values()):
            return []
        open_slots = [slot for slot in slots if slot.has_room() and slot.is_due(now)]
        suspects = [(kept.since, kept.id, slot) for slot in open_slots for kept in slot.suspects.values()]
        if suspects:
            since, id, slot = min(suspects, key=lambda suspect: suspect[:2])
            if not member.holds:
                return [self._take(member, 0, slot.suspects.pop(id), slot, now, alone=True)]
            if since <= now - PATIENCE:
                return []
        mine = Counter(hold.slot.number for hold in member.holds.values() if hold.running)
        spares = Counter(hold.slot.number for hold in member.holds.values() if hold.spare)
        tokens: list[int] = []

        def may_run(slot: Slot) -> bool:
            has_room = slot.has_room() and mine[slot.number] < slot.share(workers)
            return bool(slot.ordinary) and has_room and slot.is_due(now)

        def may_wait_for_room(slot: Slot) -> bool:
            running = mine[slot.number]
            return slot.has_spares(now) and spares[slot.number] < running <= slot.share(workers)

        def serve(may_have: Callable[[Slot], bool], count: Counter[int], *, spare: bool) -> None:
            queue = [slot.turn() for slot in slots if may_have(slot)]
            heapq.heapify(queue)
            while queue and len(tokens) < want:
                slot = heapq.heappop(queue)[-1]
                kept = heapq.heappop(slot.ordinary)[-1]
                tokens.append(self._take(member, len(tokens), kept, slot, now, spare=spare))
                count[slot.number] += 1
                if may_have(slot):
                    heapq.heappush(queue, slot.turn())

        serve(may_run, mine, spare=False)
        serve(may_wait_for_room, spares, spare=True)
        return tokens

    def _take(
        self,
        member: Member,
        index: int,
        kept: Kept,
        slot: Slot,
        now: float,
        *,
        alone: bool = False,
        spare: bool = False,
    ) -> int:
        run_at = max(now, slot.due_at)
        if slot.delay > 0:
            slot.newest, slot.leeway = run_at, leeway_of(slot.pace)
            slot.next_at = run_at + self._distance(slot) + slot.leeway
        slot.served = next(self._turns)
        slot.leased += 1
        slot.active += not spare
        token = member.seq * TOKENS_IN_BATCH + index
        member.holds[token] = Hold(kept, slot, run_at, alone, running=not spare, spare=spare)
        return token

    def _distance(self, slot: Slot) -> float:
        """Of one request and the next."""
        jitter = slot.rule.jitter
        chance = self._random.uniform(1 - jitter, 1 + jitter) if jitter else 1.0
        return max(slot.pace, slot.delay * chance)


def lease_of(token: int, hold: Hold, now: float) -> Lease:
    """What the worker is told of it."""
    entry, slot = hold.kept.entry, hold.slot
    return Lease(
        token=token,
        slot=entry.slot,
        payload=entry.payload,
        priority=entry.priority,
        seed=entry.seed,
        attempts=hold.kept.attempts,
        delay=hold.run_at - now,
        alone=hold.alone,
        pace=slot.pace,
        spare=hold.spare,
        probe=slot.is_probed,
        lost=slot.loss,
    )


def retry_in(slots: Collection[Slot], now: float) -> float | None:
    """How long until one of the slots that wait for their time is due."""
    waiting = [slot for slot in slots if slot.waiting() and slot.has_room()]
    return min((slot.opens_at - now for slot in waiting if not slot.is_due(now)), default=None)
