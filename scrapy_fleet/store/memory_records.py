"""What a store in memory keeps: entries, slots, leases and workers."""

from __future__ import annotations

from dataclasses import dataclass, field

from scrapy_fleet.model import Entry, Rule, SlotView, Worker, WorkerView
from scrapy_fleet.store.base import HORIZON


@dataclass(slots=True, eq=False)
class Kept:
    """An entry that is waiting, leased or dead."""

    id: int
    entry: Entry
    ord: int  # its place among entries of the same rank, kept for life
    attempts: int = 0
    since: float = 0.0  # when it last began to wait as a suspect
    reason: str | None = None


@dataclass(slots=True, eq=False)
class Slot:
    """What is throttled together, and what of it waits."""

    number: int
    name: str
    rule: Rule
    ordinary: list[tuple[int, int, Kept]] = field(default_factory=list)  # heap; entries leave at its top
    suspects: dict[int, Kept] = field(default_factory=dict)
    leased: int = 0
    active: int = 0  # leases whose download has not ended
    done: int = 0
    served: int = 0
    next_at: float = 0.0
    latency: float | None = None

    def has_room(self) -> bool:
        return self.active < self.rule.concurrency

    def share(self, workers: int) -> int:
        """How much of the slot one worker may have."""
        return -(-self.rule.concurrency // workers)

    def is_due(self, now: float) -> bool:
        return self.next_at <= now + HORIZON

    def waiting(self) -> int:
        return len(self.ordinary) + len(self.suspects)

    def turn(self) -> tuple[int, int, int, Slot]:
        """Slots are served smallest turn first."""
        return (self.ordinary[0][0], self.served, self.number, self)

    def view(self, now: float) -> SlotView:
        delay, concurrency, next_in = self.rule.delay, self.rule.concurrency, max(0.0, self.next_at - now)
        counts = (self.waiting(), self.leased, self.done)
        return SlotView(self.name, *counts, delay, concurrency, self.latency, next_in)


@dataclass(slots=True, eq=False)
class Hold:
    """A lease, from the side of the store."""

    kept: Kept
    slot: Slot
    run_at: float
    alone: bool
    running: bool = True  # its download takes room in the slot


@dataclass(slots=True, eq=False)
class Member:
    """A worker in the crawl."""

    worker: Worker
    ttl: float
    joined: float
    deadline: float
    seq: int = -1
    known: tuple[int, ...] = ()
    holds: dict[int, Hold] = field(default_factory=dict)

    def view(self, now: float) -> WorkerView:
        id, host, pid = self.worker.id, self.worker.host, self.worker.pid
        return WorkerView(id, host, pid, len(self.holds), now - self.joined, self.deadline - now)
