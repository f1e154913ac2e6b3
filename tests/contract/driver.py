"""What the contract tests use to drive a store: a clock that is set by hand, and workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from scrapy_fleet.model import (
    Batch,
    Beat,
    Entry,
    Kind,
    Lease,
    Outcome,
    Plan,
    Receipt,
    Rule,
    Sample,
    Snapshot,
    Start,
    Worker,
)
from scrapy_fleet.store.base import Store

WIDE = Plan(rule=Rule(concurrency=1_000_000))
"""No delay and room for everything: for tests that are about something else."""
KINDS: tuple[Kind, ...] = ("waiting", "leased", "dead")


class Clock:
    """The store's time, moved by the test."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def page(
    name: str, slot: str = "a", *, priority: int = 0, key: int | None = None, seed: bool = False
) -> Entry:
    return Entry(slot=slot, payload=name.encode(), priority=priority, key=key, seed=seed)


def pages(*names: str, slot: str = "a") -> tuple[Entry, ...]:
    return tuple(page(name, slot) for name in names)


def names(things: Iterable[Any]) -> list[str]:
    """The payloads of leases or rows, as text."""
    return [thing.payload.decode() for thing in things]


def spaced(delay: float, number: int) -> Any:
    """When so many leases of a slot may run whose requests follow each other closely."""
    return pytest.approx([delay * n for n in range(number)])


class Hand:
    """One worker of a crawl: joins, and numbers its batches."""

    def __init__(self, store: Store, id: str = "w", plan: Plan = WIDE, ttl: float = 60.0) -> None:
        self.store = store
        self.id = id
        self.joined = store.join(Worker(id), plan, ttl)
        self.last = Batch(worker=id, seq=0)

    def commit(self, **fields: Any) -> Receipt:
        self.last = Batch(worker=self.id, seq=self.last.seq + 1, **fields)
        return self.store.commit(self.last)

    def again(self) -> Receipt:
        """Send the last batch once more, as after a lost answer."""
        return self.store.commit(self.last)

    def add(self, *entries: Entry) -> Receipt:
        return self.commit(adds=entries)

    def lease(self, want: int = 100) -> list[Lease]:
        """Leases that have room of their own; spares are handed back."""
        leases = self.commit(want=want).leases
        if any(lease.spare for lease in leases):
            self.release(*(lease for lease in leases if lease.spare))
        return [lease for lease in leases if not lease.spare]

    def settle(self, *leases: Lease, dead: str | None = None, **fields: Any) -> Receipt:
        return self.commit(outcomes=tuple(Outcome(lease.token, dead) for lease in leases), **fields)

    def begin(self, lease: Lease, late: float = 0.0) -> Receipt:
        """Its download has begun."""
        return self.commit(starts=(Start(lease.token, late),))

    def sample(self, *leases: Lease, **fields: Any) -> Receipt:
        """Their downloads have ended, all in the same way."""
        return self.commit(samples=tuple(Sample(lease.token, **fields) for lease in leases))

    def release(self, *leases: Lease) -> Receipt:
        return self.commit(releases=tuple(lease.token for lease in leases))

    def leave(self, **fields: Any) -> Receipt:
        return self.commit(leave=True, **fields)

    def beat(self) -> Beat:
        return self.store.beat(self.id)


def crash(store: Store, *hands: Hand) -> int:
    """The processes of these workers are gone."""
    return store.give_up(tuple(hand.id for hand in hands))


def conserved(store: Store) -> None:
    """The counters add up, and say what a look at the entries says."""
    everything = 1_000_000
    rows = {kind: store.scan(kind, limit=everything) for kind in KINDS}
    adds_up(store.snapshot(slots=everything), *map(len, rows.values()))


def adds_up(snapshot: Snapshot, waiting: int, leased: int, dead: int) -> None:
    """So many were found of each kind, and that is what all counters say."""
    counts = snapshot.counts
    assert counts.waiting + counts.leased + counts.done + counts.dead == counts.accepted
    assert (counts.waiting, counts.leased, counts.dead) == (waiting, leased, dead)
    assert sum(slot.waiting for slot in snapshot.slots) == counts.waiting
    assert sum(slot.leased for slot in snapshot.slots) == counts.leased
    assert sum(worker.leased for worker in snapshot.workers) == counts.leased
    assert len(snapshot.slots) == snapshot.slot_count
