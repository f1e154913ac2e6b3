"""A crawl in this process's memory: the reference that other stores are compared with.

It is written to be obviously right rather than fast. Nothing survives the process.
"""

from __future__ import annotations

import heapq
import itertools
import random as random_module
import time
from collections import Counter
from collections.abc import Callable, Iterable

from scrapy_fleet import model
from scrapy_fleet.errors import CrawlInUse, GivenUp
from scrapy_fleet.model import Batch, Counts, Entry, Lease, Plan, Receipt, Row, Seeding, Worker
from scrapy_fleet.store.base import HORIZON, MAX_WANT, PATIENCE
from scrapy_fleet.store.memory_records import Hold, Kept, Member, Slot

LATENCY_WEIGHT = 0.3


class MemoryStore:
    """The contract of :class:`~scrapy_fleet.store.base.Store`, in plain dicts and lists."""

    url = "memory://"

    def __init__(
        self,
        crawl: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: random_module.Random | None = None,
    ) -> None:
        self.crawl = crawl
        self._clock = clock
        self._random = random or random_module.Random()
        self._ids = itertools.count(1)
        self._turns = itertools.count(1)
        self._members: dict[str, Member] = {}
        self._seen: set[int] = set()
        self._items: list[bytes] = []
        self._plan = Plan()
        self._run = 1
        self._joined_ever = False
        self._mode: model.Mode = "run"
        self._clear()

    def _clear(self) -> None:
        """What a new run forgets."""
        self._waiting: dict[int, Kept] = {}
        self._dead: dict[int, Kept] = {}
        self._slots: dict[str, Slot] = {}
        self._accepted = self._done = 0
        self._stats: dict[str, float] = {}
        self._state: dict[str, bytes] = {}
        self._seeder: str | None = None
        self._seeded = self._finished = False

    def join(self, worker: Worker, plan: Plan, ttl: float, *, run: int | None = None) -> model.Joined:
        now = self._clock()
        new_run = self._finished and run is None
        if new_run:
            self._run += 1
            self._clear()
            if not plan.keep_seen:
                self._seen.clear()
        if worker.id not in self._members:
            self._members[worker.id] = Member(worker, ttl, joined=now, deadline=now + ttl)
            self._joined_ever = True
        self._offer_seeding(worker.id)
        self._members[worker.id].ttl = ttl
        self._alive(worker.id, now)
        if self._mode == "stop" and run is None and not self._any_alive(now, but=worker.id):
            self._mode = "run"
        self._plan = plan
        for slot in self._slots.values():
            slot.rule = plan.rule_of(slot.name)
        resumed = not new_run and self._accepted > 0
        others = tuple(member.worker for id, member in self._members.items() if id != worker.id)
        seeding = self._seeding(worker.id)
        counts, state = self._counts(), dict(self._state)
        return model.Joined(self._run, resumed, counts, seeding, state, others, self._mode)

    def beat(self, worker: str) -> model.Beat:
        now = self._clock()
        self._alive(worker, now)
        silent = [id for id, member in self._members.items() if member.deadline <= now and id != worker]
        reaped = self._bury(silent, now)
        self._offer_seeding(worker)
        return model.Beat(self._counts(), self._seeding(worker), reaped, self._mode)

    def give_up(self, workers: tuple[str, ...]) -> int:
        return self._bury(workers, self._clock())

    def _any_alive(self, now: float, but: str | None = None) -> bool:
        return any(member.deadline > now for id, member in self._members.items() if id != but)

    def _alive(self, worker: str, now: float) -> Member:
        if worker not in self._members:
            raise GivenUp(GivenUp.__doc__)
        member = self._members[worker]
        member.deadline = now + member.ttl
        return member

    def _bury(self, workers: Iterable[str], now: float) -> int:
        """Forget workers that died; how many leases they held."""
        holds = [hold for id in workers if id in self._members for hold in self._forget(id)]
        for hold in holds:
            kept = hold.kept
            kept.attempts += 1
            if hold.alone and kept.attempts >= self._plan.max_attempts:
                times = f"its worker died {kept.attempts} times while holding it"
                self._die(kept, f"{times}, the last time with nothing else")
            else:
                self._wait(kept, now)
        return len(holds)

    def _forget(self, worker: str) -> list[Hold]:
        """The worker is no longer there; what it held, now held by nobody."""
        member = self._members[worker]
        holds = self._let_go(member, list(member.holds))
        del self._members[worker]
        if self._seeder == worker:
            self._seeder = None
        return holds

    def _offer_seeding(self, worker: str) -> None:
        if self._seeder is None and not self._seeded:
            self._seeder = worker

    def _seeding(self, worker: str) -> Seeding:
        if self._seeded:
            return Seeding.DONE
        return Seeding.MINE if self._seeder == worker else Seeding.OTHER

    def commit(self, batch: Batch) -> Receipt:
        now = self._clock()
        member = self._alive(batch.worker, now)
        if batch.seq <= member.seq:
            return self._receipt_again(member, batch.seq, now)
        member.seq = batch.seq
        member.known = self._add(batch.adds)
        self._seen.update(batch.marks)
        for sample in batch.samples:
            self._take_sample(member, sample)
        for outcome in batch.outcomes:
            for hold in self._let_go(member, [outcome.token]):
                self._items.extend(outcome.items)
                if outcome.dead is None:
                    self._done += 1
                    hold.slot.done += 1
                else:
                    self._die(hold.kept, outcome.dead)
        for hold in self._let_go(member, batch.releases):
            self._wait(hold.kept, now)
        self._offer_seeding(batch.worker)
        if batch.seeded and self._seeder == batch.worker:
            self._seeded, self._seeder = True, None
        seeding = self._seeding(batch.worker)
        self._items.extend(batch.items)
        for name, value in batch.stats.items():
            self._stats[name] = self._stats.get(name, 0) + value
        self._state.update({name: data for name, data in batch.state.items() if data is not None})
        for name in [name for name, data in batch.state.items() if data is None]:
            self._state.pop(name, None)

        leases: list[Lease] = []
        retry_in = None
        if batch.leave:
            for hold in self._forget(batch.worker):
                self._wait(hold.kept, now)
            if batch.finish and self._seeded and self._counts().open == 0:
                self._finished = True
        elif batch.want > 0 and self._mode == "run":
            want = min(batch.want, MAX_WANT)
            leases = self._hand_out(member, want, now)
            retry_in = self._retry_in(now) if len(leases) < want else None
        return Receipt(self._counts(), seeding, tuple(leases), member.known, retry_in, self._mode)

    def _receipt_again(self, member: Member, seq: int, now: float) -> Receipt:
        """The answer to a batch that was applied before. Only the last one's is still known."""
        counts, seeding = self._counts(), self._seeding(member.worker.id)
        if seq < member.seq:
            return Receipt(counts, seeding, mode=self._mode)
        tokens = [token for token in sorted(member.holds) if token // 65536 == seq]
        leases = tuple(self._lease(token, member.holds[token], now) for token in tokens)
        return Receipt(counts, seeding, leases, member.known, mode=self._mode)

    def _add(self, entries: tuple[Entry, ...]) -> tuple[int, ...]:
        known = []
        for position, entry in enumerate(entries):
            if entry.key is not None:
                if entry.key in self._seen:
                    known.append(position)
                    continue
                self._seen.add(entry.key)
            if entry.slot not in self._slots:
                rule = self._plan.rule_of(entry.slot)
                self._slots[entry.slot] = Slot(len(self._slots), entry.slot, rule)
            id = next(self._ids)
            newest_first = self._plan.lifo and not entry.seed
            self._wait(Kept(id, entry, ord=-id if newest_first else id), now=0.0)
            self._accepted += 1
            # What was accepted must be done, even if it came after the end.
            self._finished = False
        return tuple(known)

    def _wait(self, kept: Kept, now: float) -> None:
        slot = self._slots[kept.entry.slot]
        self._waiting[kept.id] = kept
        if kept.attempts >= self._plan.suspect_after:
            kept.since = now
            slot.suspects[kept.id] = kept
        else:
            heapq.heappush(slot.ordinary, (kept.entry.rank, kept.ord, kept))

    def _die(self, kept: Kept, reason: str) -> None:
        kept.reason = reason
        self._dead[kept.id] = kept

    def _take_sample(self, member: Member, sample: model.Sample) -> None:
        hold = member.holds.get(sample.token)
        if hold is None or not hold.running:
            return
        hold.running = False
        hold.slot.active -= 1
        if sample.latency is not None:
            old = sample.latency if hold.slot.latency is None else hold.slot.latency
            hold.slot.latency = old + LATENCY_WEIGHT * (sample.latency - old)

    def _let_go(self, member: Member, tokens: Iterable[int]) -> list[Hold]:
        """End these leases. Tokens that the worker does not hold are passed over."""
        holds = [member.holds.pop(token) for token in dict.fromkeys(tokens) if token in member.holds]
        for hold in holds:
            hold.slot.leased -= 1
            hold.slot.active -= hold.running
        return holds

    def _hand_out(self, member: Member, want: int, now: float) -> list[Lease]:
        if any(hold.alone for hold in member.holds.values()):
            return []
        open_slots = [slot for slot in self._slots.values() if slot.has_room() and slot.is_due(now)]
        suspects = [kept for slot in open_slots for kept in slot.suspects.values()]
        if suspects:
            oldest = min(suspects, key=lambda kept: (kept.since, kept.id))
            if not member.holds:
                slot = self._slots[oldest.entry.slot]
                del slot.suspects[oldest.id]
                return [self._take(member, 0, oldest, slot, now, alone=True)]
            if oldest.since <= now - PATIENCE:
                return []
        mine = Counter(hold.slot.number for hold in member.holds.values() if hold.running)
        workers = len(self._members)
        queue = [
            slot.turn() for slot in open_slots if slot.ordinary and mine[slot.number] < slot.share(workers)
        ]
        heapq.heapify(queue)
        leases: list[Lease] = []
        while queue and len(leases) < want:
            slot = heapq.heappop(queue)[-1]
            kept = heapq.heappop(slot.ordinary)[-1]
            leases.append(self._take(member, len(leases), kept, slot, now, alone=False))
            mine[slot.number] += 1
            has_room = slot.has_room() and mine[slot.number] < slot.share(workers)
            if slot.ordinary and has_room and slot.is_due(now):
                heapq.heappush(queue, slot.turn())
        return leases

    def _take(self, member: Member, index: int, kept: Kept, slot: Slot, now: float, *, alone: bool) -> Lease:
        del self._waiting[kept.id]
        delay, jitter = slot.rule.delay, slot.rule.jitter
        run_at = max(now, slot.next_at)
        if delay > 0:
            slot.next_at = run_at + delay * (self._random.uniform(1 - jitter, 1 + jitter) if jitter else 1.0)
        slot.served = next(self._turns)
        slot.leased += 1
        slot.active += 1
        token = member.seq * 65536 + index
        hold = member.holds[token] = Hold(kept, slot, run_at, alone)
        return self._lease(token, hold, now)

    @staticmethod
    def _lease(token: int, hold: Hold, now: float) -> Lease:
        entry, attempts, delay = hold.kept.entry, hold.kept.attempts, max(0.0, hold.run_at - now)
        return Lease(
            token, entry.slot, entry.payload, entry.priority, entry.seed, attempts, delay, hold.alone
        )

    def _retry_in(self, now: float) -> float | None:
        waiting = [slot for slot in self._slots.values() if slot.waiting() and slot.has_room()]
        return min((slot.next_at - HORIZON - now for slot in waiting if not slot.is_due(now)), default=None)

    def _counts(self) -> Counts:
        leased = sum(len(member.holds) for member in self._members.values())
        return Counts(self._accepted, len(self._waiting), leased, self._done, len(self._dead))

    def snapshot(self, slots: int = 20) -> model.Snapshot:
        now = self._clock()
        busiest = sorted(self._slots.values(), key=lambda slot: (-slot.waiting(), slot.name))[:slots]
        return model.Snapshot(
            crawl=self.crawl,
            run=self._run,
            status=self._status(),
            counts=self._counts(),
            seen=len(self._seen),
            items=len(self._items),
            slot_count=len(self._slots),
            slots=tuple(slot.view(now) for slot in busiest),
            workers=tuple(member.view(now) for member in self._members.values()),
            stats=dict(self._stats),
            mode=self._mode,
        )

    def _status(self) -> model.Status:
        if self._finished:
            return "finished"
        if not self._joined_ever:
            return "new"
        if not self._any_alive(self._clock()):
            return "stopped"
        return "running" if self._seeded else "seeding"

    def scan(
        self, kind: model.Kind, *, slot: str | None = None, after: int = 0, limit: int = 100
    ) -> list[Row]:
        if kind == "waiting" and slot is not None:
            place = self._slots.get(slot) or Slot(0, slot, model.Rule())
            rows = [self._row(kept) for _, _, kept in sorted(place.ordinary)]
            rows += [
                self._row(kept) for kept in sorted(place.suspects.values(), key=lambda k: (k.since, k.id))
            ]
            return rows[after : after + limit]
        if kind == "leased":
            members = self._members.items()
            rows = [self._row(hold.kept, id) for id, member in members for hold in member.holds.values()]
        else:
            rows = [self._row(kept) for kept in (self._waiting if kind == "waiting" else self._dead).values()]
        chosen = [row for row in rows if row.id > after and slot in (None, row.slot)]
        return sorted(chosen, key=lambda row: row.id)[:limit]

    @staticmethod
    def _row(kept: Kept, worker: str | None = None) -> Row:
        e = kept.entry
        return Row(kept.id, e.slot, e.priority, e.seed, kept.attempts, e.payload, worker, kept.reason)

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        risen = self._take_dead(ids)
        for kept in risen:
            kept.attempts, kept.reason = 0, None
            self._wait(kept, now=0.0)
            self._finished = False
        return len(risen)

    def drop(self, ids: tuple[int, ...] | None = None) -> int:
        dropped = len(self._take_dead(ids))
        self._done += dropped
        return dropped

    def _take_dead(self, ids: tuple[int, ...] | None) -> list[Kept]:
        chosen = list(self._dead) if ids is None else dict.fromkeys(ids)
        return [self._dead.pop(id) for id in chosen if id in self._dead]

    def control(self, mode: model.Mode) -> None:
        self._mode = mode

    def clear(self) -> None:
        if self._any_alive(self._clock()):
            raise CrawlInUse(CrawlInUse.__doc__)
        self._members.clear()
        self._seen.clear()
        self._items.clear()
        self._run += 1
        self._joined_ever = False
        self._mode = "run"
        self._clear()

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        return list(enumerate(self._items[after : after + limit], start=after + 1))

    def close(self) -> None:
        """There is no connection to let go of."""
