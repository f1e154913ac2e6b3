"""A crawl in this process's memory: the reference that other stores are compared with.

It is written to be obviously right rather than fast. Nothing survives the process.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable
from random import Random

from scrapy_fleet import model, politeness
from scrapy_fleet.errors import CrawlInUse, GivenUp
from scrapy_fleet.model import Batch, Counts, Entry, Lease, Plan, Receipt, Row, Seeding, Worker
from scrapy_fleet.store import memory_cargo
from scrapy_fleet.store.base import MAX_WANT, refuse_beside
from scrapy_fleet.store.memory_items import Items, ItemVerbs
from scrapy_fleet.store.memory_leasing import TOKENS_IN_BATCH, Leasing, lease_of, retry_in
from scrapy_fleet.store.memory_papers import Document, PaperVerbs
from scrapy_fleet.store.memory_records import Hold, Kept, Member, Slot
from scrapy_fleet.store.memory_seen import MemorySeen


class MemoryStore(MemorySeen, ItemVerbs, PaperVerbs):
    """The contract of :class:`~scrapy_fleet.store.base.Store`, in plain dicts and lists."""

    url = "memory://"
    dump, load = memory_cargo.dump, memory_cargo.load

    def __init__(
        self, crawl: str, *, clock: Callable[[], float] = time.monotonic, random: Random | None = None
    ) -> None:
        super().__init__(crawl, clock)
        self._leasing = Leasing(random or Random())
        self._ids = itertools.count(1)
        self._members: dict[str, Member] = {}
        self._items = Items()
        self._overrides: dict[str, model.Override] = {}
        self._papers: dict[str, Document] = {}
        self._producers: dict[str, float] = {}
        self._halts = 0
        self._plan, self._run, self._joined_ever = Plan(), 1, False
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
        if not (new_run and plan.forgets):
            self._check_seen(plan.seen)
        if new_run:
            self._run += 1
            self._clear()
            if plan.forgets:
                self._forget_seen(plan.seen)
        self._settle_seen(plan.seen)
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
            slot.plan = plan
        resumed = not new_run and self._accepted > 0
        others = tuple(member.worker for id, member in self._members.items() if id != worker.id)
        counts, seeding, state = self._counts(), self._seeding(worker.id), dict(self._state)
        return model.Joined(self._run, resumed, counts, seeding, state, others, self._mode)

    def beat(self, worker: str) -> model.Beat:
        now = self._clock()
        self._alive(worker, now)
        silent = [id for id, member in self._members.items() if member.deadline <= now and id != worker]
        reaped = self._bury(silent, now)
        self._producers = {name: until for name, until in self._producers.items() if until > now}
        self._offer_seeding(worker)
        return model.Beat(self._counts(), self._seeding(worker), reaped, self._mode, len(self._members))

    def give_up(self, workers: tuple[str, ...]) -> int:
        return self._bury(workers, self._clock())

    def feed(self, producer: str, ttl: float) -> None:
        self._producers.pop(producer, None)
        if ttl > 0:
            self._producers[producer] = self._clock() + ttl

    def push(self, entries: tuple[Entry, ...], marks: tuple[int, ...] = ()) -> tuple[int, ...]:
        self._settle_for(entries, marks)
        known = self._add(entries, self._clock())
        self._meet_keys(marks, self._clock())
        return known

    def waiting(self, slot: str) -> int:
        return self._slots[slot].waiting() if slot in self._slots else 0

    def _any_alive(self, now: float, but: str | None = None) -> bool:
        return any(member.deadline > now for id, member in self._members.items() if id != but)

    def _in_use(self) -> bool:
        return self._any_alive(self._clock())

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
        refuse_beside(batch)
        member.seq = batch.seq
        member.known = self._add(batch.adds, now)
        self._meet_keys(batch.marks, now)
        member.begin(batch.starts, now)
        for sample in batch.samples:
            self._take_sample(member, sample, now)
        for notice in batch.notices:
            self._take_notice(notice, now)
        for outcome in batch.outcomes:
            for hold in self._let_go(member, [outcome.token]):
                self._items.extend(outcome.items)
                if outcome.dead is None:
                    self._done += 1
                    hold.slot.done += 1
                else:
                    self._die(hold.kept, outcome.dead)
        for hold in self._let_go(member, batch.releases):
            hold.give_back()
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

        member.told_before, member.told = member.told, self._halts
        tokens: list[int] = []
        later = None
        if batch.leave:
            for hold in self._forget(batch.worker):
                self._wait(hold.kept, now)
            if batch.finish and self._seeded and not (self._counts().open or self._producers):
                self._finished = True
        elif batch.want > 0 and self._mode == "run":
            want = min(batch.want, MAX_WANT)
            slots = self._slots.values()
            tokens = self._leasing.hand_out(member, slots, len(self._members), want, now)
            later = retry_in(slots, now) if len(tokens) < want else None
        for token in tokens:
            del self._waiting[member.holds[token].kept.id]
        leases, held = self._leases(member, tokens, now), self._halted(member)
        return Receipt(self._counts(), seeding, leases, member.known, later, self._mode, held)

    def _receipt_again(self, member: Member, seq: int, now: float) -> Receipt:
        """The answer to a batch that was applied before. Only the last one's is still known."""
        counts, seeding = self._counts(), self._seeding(member.worker.id)
        if seq < member.seq:
            return Receipt(counts, seeding, mode=self._mode)
        tokens = [token for token in sorted(member.holds) if token // TOKENS_IN_BATCH == seq]
        leases = self._leases(member, tokens, now)
        return Receipt(counts, seeding, leases, member.known, mode=self._mode, held=self._halted(member))

    @staticmethod
    def _leases(member: Member, tokens: list[int], now: float) -> tuple[Lease, ...]:
        return tuple(lease_of(token, member.holds[token], now) for token in tokens)

    @staticmethod
    def _halted(member: Member) -> tuple[str, ...]:
        """Slots that were halted since the batch before; what came with this batch came after that."""
        earlier = [hold.slot for token, hold in member.holds.items() if token // TOKENS_IN_BATCH < member.seq]
        return tuple(sorted({slot.name for slot in earlier if slot.halted > member.told_before}))

    def _add(self, entries: tuple[Entry, ...], now: float) -> tuple[int, ...]:
        known = []
        for position, entry in enumerate(entries):
            if entry.key is not None and not self._filter.add(entry.key, now):
                known.append(position)
                continue
            self._meet(entry.slot)
            id = next(self._ids)
            newest_first = self._plan.lifo and not entry.seed
            self._wait(Kept(id, entry, ord=-id if newest_first else id), now=0.0)
            self._accepted += 1
            # What was accepted must be done, even if it came after the end.
            self._finished = False
        return tuple(known)

    def _meet(self, name: str) -> Slot:
        if name not in self._slots:
            self._slots[name] = Slot(len(self._slots), name, self._plan, self._overrides.get(name))
        return self._slots[name]

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

    def _take_sample(self, member: Member, sample: model.Sample, now: float) -> None:
        hold = member.holds.get(sample.token)
        if hold is None or not hold.running:
            return
        slot = hold.slot
        hold.running = False
        heir = None if sample.then is None else member.holds.get(sample.then)
        if heir is not None and heir.spare and heir.slot is slot:
            heir.running, heir.spare = True, False
        else:
            slot.active -= 1
        slot.took(sample.latency)
        self._learn(slot, politeness.sampled(slot.manners, sample, self._plan, slot.rule, now))

    def _take_notice(self, notice: model.Notice, now: float) -> None:
        slot = self._meet(notice.slot)
        delay = slot.delay
        self._learn(slot, politeness.noticed(slot.manners, notice, self._plan, now))
        if slot.delay > delay:
            self._halt(slot)

    def _learn(self, slot: Slot, manners: politeness.Manners) -> None:
        longer = manners.held_until > slot.manners.held_until
        slot.manners = manners
        if longer:
            self._halt(slot)

    def _halt(self, slot: Slot) -> None:
        """Workers that have leases in it are to be told."""
        self._halts += 1
        slot.halted = self._halts

    def _let_go(self, member: Member, tokens: Iterable[int]) -> list[Hold]:
        """End these leases. Tokens that the worker does not hold are passed over."""
        holds = [member.holds.pop(token) for token in dict.fromkeys(tokens) if token in member.holds]
        for hold in holds:
            hold.slot.leased -= 1
            hold.slot.active -= hold.running
        return holds

    def _counts(self) -> Counts:
        leased = sum(len(member.holds) for member in self._members.values())
        ended, feeding = (self._done, len(self._dead)), len(self._producers)
        return Counts(self._accepted, len(self._waiting), leased, *ended, feeding)

    def snapshot(self, slots: int = 20) -> model.Snapshot:
        now = self._clock()
        busiest = sorted(self._slots.values(), key=lambda slot: (-slot.waiting(), slot.name))[:slots]
        return model.Snapshot(
            crawl=self.crawl,
            run=self._run,
            status=self._status(),
            counts=self._counts(),
            seen=len(self._filter),
            items=self._items.total,
            slot_count=len(self._slots),
            slots=tuple(slot.view(now) for slot in busiest),
            workers=tuple(member.view(now) for member in self._members.values()),
            stats=dict(self._stats),
            mode=self._mode,
        )

    def _status(self) -> model.Status:
        if self._finished:
            return "finished"
        if not (self._joined_ever or self._accepted):
            return "new"
        if not self._any_alive(self._clock()):
            return "stopped"
        return "running" if self._seeded else "seeding"

    def scan(
        self, kind: model.Kind, *, slot: str | None = None, after: int = 0, limit: int = 100
    ) -> list[Row]:
        if kind == "waiting" and slot is not None:
            waiting = self._slots[slot].in_order() if slot in self._slots else []
            return [kept.row() for kept in waiting[after : after + limit]]
        if kind == "leased":
            members = self._members.items()
            rows = [hold.kept.row(id) for id, member in members for hold in member.holds.values()]
        else:
            rows = [kept.row() for kept in (self._waiting if kind == "waiting" else self._dead).values()]
        chosen = [row for row in rows if row.id > after and slot in (None, row.slot)]
        return sorted(chosen, key=lambda row: row.id)[:limit]

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        risen = self._take_dead(ids)
        for kept in risen:
            kept.attempts, kept.reason = 0, None
            slot = self._slots[kept.entry.slot]
            slot.manners = politeness.pardoned(slot.manners)
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
        if self._in_use():
            raise CrawlInUse(CrawlInUse.__doc__)
        for kept in (self._members, self._overrides, self._papers, self._producers, self._items):
            kept.clear()
        self._forget_seen(None)
        self._run += 1
        self._joined_ever = False
        self._mode = "run"
        self._clear()

    def override(self, slot: str, override: model.Override | None) -> None:
        self._overrides.pop(slot, None)
        if override is not None:
            self._overrides[slot] = override
        place = self._slots.get(slot)
        if place is not None:
            delay, concurrency = place.delay, place.concurrency
            place.override = override
            place.manners = politeness.pardoned(place.manners)
            if place.delay > delay or place.concurrency < concurrency:
                self._halt(place)

    def slot(self, name: str) -> model.SlotView | None:
        if name in self._slots:
            return self._slots[name].view(self._clock())
        if name in self._overrides:
            return Slot(0, name, self._plan, self._overrides[name]).view(self._clock())
        return None

    def close(self) -> None:
        """There is no connection to let go of."""
