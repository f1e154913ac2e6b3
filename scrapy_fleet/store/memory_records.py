"""What a store in memory keeps: entries, slots, leases and workers."""

from __future__ import annotations

from dataclasses import dataclass, field

from scrapy_fleet import politeness
from scrapy_fleet.model import Entry, Override, Plan, Row, Rule, SlotView, Start, Worker, WorkerView
from scrapy_fleet.politeness import Manners
from scrapy_fleet.store.base import HORIZON

LATENCY_WEIGHT = 0.3


@dataclass(slots=True, eq=False)
class Kept:
    """An entry that is waiting, leased or dead."""

    id: int
    entry: Entry
    ord: int  # its place among entries of the same rank, kept for life
    attempts: int = 0
    since: float = 0.0  # when it last began to wait as a suspect
    reason: str | None = None

    def row(self, worker: str | None = None) -> Row:
        e = self.entry
        return Row(self.id, e.slot, e.priority, e.seed, self.attempts, e.payload, worker, self.reason)


@dataclass(slots=True, eq=False)
class Slot:
    """What is throttled together, and what of it waits."""

    number: int
    name: str
    plan: Plan
    override: Override | None = None
    manners: Manners = field(default_factory=Manners)
    ordinary: list[tuple[int, int, Kept]] = field(default_factory=list)  # heap; entries leave at its top
    suspects: dict[int, Kept] = field(default_factory=dict)
    leased: int = 0
    active: int = 0  # leases whose download has not ended
    done: int = 0
    served: int = 0
    next_at: float = 0.0
    newest: float = 0.0  # when the lease may run that was paced last
    leeway: float = 0.0  # how much of next_at is there for that one to begin late
    latency: float | None = None
    halted: int = 0  # what the crawl's count of such events was at its last

    @property
    def rule(self) -> Rule:
        return self.plan.rule_of(self.name)

    @property
    def delay(self) -> float:
        return politeness.delay_of(self.manners, self.plan, self.rule, self.override)

    @property
    def pace(self) -> float:
        return politeness.pace_of(self.manners, self.plan, self.rule, self.override)

    @property
    def concurrency(self) -> int:
        return politeness.concurrency_of(self.manners, self.plan, self.rule, self.override)

    @property
    def is_probed(self) -> bool:
        return politeness.is_probed(self.manners, self.plan)

    @property
    def loss(self) -> str:
        return politeness.loss_of(self.manners, self.plan)

    @property
    def due_at(self) -> float:
        return politeness.due_at(self.manners, self.next_at)

    def has_room(self) -> bool:
        return self.active < self.concurrency

    def share(self, workers: int) -> int:
        """How much of the slot one worker may have."""
        return -(-self.concurrency // workers)

    @property
    def opens_at(self) -> float:
        """When it may be served: ahead of its time, but for as long as its leeway is not given back."""
        return self.due_at if self.leeway else self.due_at - HORIZON

    def is_due(self, now: float) -> bool:
        return self.opens_at <= now

    def has_spares(self, now: float) -> bool:
        """Whether a worker may be given what runs when a download of its own has ended."""
        if not self.ordinary or self.suspects or self.is_probed or self.manners.lost:
            return False
        return self.delay == 0 and self.due_at <= now

    def took(self, latency: float | None) -> None:
        """So long did a download take, if it is known."""
        if latency is not None:
            old = latency if self.latency is None else self.latency
            self.latency = old + LATENCY_WEIGHT * (latency - old)

    def waiting(self) -> int:
        return len(self.ordinary) + len(self.suspects)

    def in_order(self) -> list[Kept]:
        """What waits, as it will be handed out; suspects last, though they do not wait for the others."""
        suspects = sorted(self.suspects.values(), key=lambda kept: (kept.since, kept.id))
        return [kept for _, _, kept in sorted(self.ordinary)] + suspects

    def turn(self) -> tuple[int, int, int, Slot]:
        """Slots are served smallest turn first."""
        boost = self.override.boost if self.override else 0
        return (self.ordinary[0][0] - 2 * boost, self.served, self.number, self)

    def view(self, now: float) -> SlotView:
        reason = politeness.why_it_waits(
            *(self.manners, self.plan, self.rule, self.override),
            waiting=self.waiting(),
            active=self.active,
            next_at=self.next_at,
            now=now,
        )
        return SlotView(
            name=self.name,
            waiting=self.waiting(),
            leased=self.leased,
            done=self.done,
            delay=self.delay,
            concurrency=self.concurrency,
            latency=self.latency,
            next_in=max(0.0, self.due_at - now),
            reason=reason,
            robots=self.manners.robots,
            override=self.override,
        )


@dataclass(slots=True, eq=False)
class Hold:
    """A lease, from the side of the store."""

    kept: Kept
    slot: Slot
    run_at: float
    alone: bool = False
    running: bool = True  # its download takes room in the slot
    spare: bool = False  # it has had no room yet

    def begin(self, late: float, now: float) -> None:
        """It began so late: what it did not need of its slot's leeway is given back, and what it needed more
        is taken; it cannot have begun after now."""
        slot = self.slot
        if slot.leeway and self.run_at == slot.newest:
            slot.next_at += min(late, max(slot.leeway, now - self.run_at)) - slot.leeway
            slot.leeway = 0.0

    def give_back(self) -> None:
        """It will not begin: its slot is free when it was for this one."""
        slot = self.slot
        if self.running and slot.leeway and self.run_at == slot.newest:
            slot.next_at, slot.leeway = self.run_at, 0.0


@dataclass(slots=True, eq=False)
class Member:
    """A worker in the crawl."""

    worker: Worker
    ttl: float
    joined: float
    deadline: float
    told: int = 0  # the count of halted slots at its last batch
    told_before: int = 0  # the same at the batch before, for when the last comes again
    seq: int = -1
    known: tuple[int, ...] = ()
    holds: dict[int, Hold] = field(default_factory=dict)

    def begin(self, starts: tuple[Start, ...], now: float) -> None:
        """So late did downloads begin, of which it holds some."""
        for start in starts:
            if start.token in self.holds:
                self.holds[start.token].begin(start.late, now)

    def view(self, now: float) -> WorkerView:
        id, host, pid = self.worker.id, self.worker.host, self.worker.pid
        return WorkerView(id, host, pid, len(self.holds), now - self.joined, self.deadline - now)
