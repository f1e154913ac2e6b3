"""A frontier at work without Scrapy: a real event loop, a real store, and an owner that notes things."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from scrapy_fleet.errors import FleetError
from scrapy_fleet.frontier import Frontier
from scrapy_fleet.model import Batch, Entry, Joined, Lease, Outcome, Plan, Receipt, Rule, Worker
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.sqlite import SqliteStore

PATIENCE = 30.0
"""Seconds after which a test gives up; nothing waits that long unless something is wrong."""

WIDE = Plan(rule=Rule(concurrency=1_000_000))
NEVER = 3600.0

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@dataclass
class Limits:
    capacity: int = 4
    lookahead: int = 4
    commit_interval: float = NEVER
    commit_size: int = 1_000_000
    worker_timeout: float = 30.0
    plan: Plan = WIDE


class Recording(MemoryStore):
    """Keeps what it applied, in order; ``before`` may raise or wait, ``after`` may lose the answer."""

    def __init__(self, crawl: str = "c") -> None:
        super().__init__(crawl)
        self.applied: list[tuple[Batch, Receipt]] = []
        self.before: Callable[[Batch], None] = lambda batch: None
        self.after: Callable[[Batch], None] = lambda batch: None
        self.closed = threading.Event()
        self._numbers: set[tuple[str, int]] = set()

    def commit(self, batch: Batch) -> Receipt:
        self.before(batch)
        receipt = super().commit(batch)
        if (batch.worker, batch.seq) not in self._numbers:  # not one that is repeated
            self._numbers.add((batch.worker, batch.seq))
            self.applied.append((batch, receipt))
        self.after(batch)
        return receipt

    def close(self) -> None:
        self.closed.set()

    @property
    def batches(self) -> list[Batch]:
        return [batch for batch, _ in self.applied]

    def with_adds(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.adds]


@dataclass
class Desk:
    """One worker: its frontier, and what that told. ``gather`` may be replaced."""

    store: Store
    limits: Limits = field(default_factory=Limits)
    name: str = "w"

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._broken: Exception | None = None
        self.joined: Joined | None = None
        self.failure: FleetError | None = None
        self.accepted = 0
        self.met_again: list[Entry] = []
        self.times_ready = 0
        self.times_given_up = 0
        self.gather: Callable[[], None] = lambda: None
        self.frontier = Frontier(lambda: self.store, Worker(self.name), self.limits, self, self)

    # As an event loop

    def post(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the test is over
            self._loop.call_soon_threadsafe(self._call, call)

    def later(self, delay: float, call: Callable[[], None]) -> None:
        self._loop.call_later(delay, self._call, call)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._broken = error
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that a call on the loop brings about."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
                if self._broken is not None:
                    raise self._broken

    # As an owner

    def ready(self) -> None:
        self.times_ready += 1

    def added(self, accepted: int, known: list[Entry]) -> None:
        self.accepted += accepted
        self.met_again += known

    def given_up(self) -> None:
        self.times_given_up += 1

    def emptied(self, held: list[Lease]) -> list[Entry]:
        return [self._entry_of(lease) for lease in held]

    def _entry_of(self, lease: Lease) -> Entry:
        return Entry(lease.slot, lease.payload, lease.priority, None, lease.seed)

    def failed(self, error: FleetError) -> None:
        self.failure = error

    # Working

    async def open(self) -> Desk:
        """Join, and wait until the first question for work is answered."""
        self.frontier.open(lambda joined: setattr(self, "joined", joined))
        self.later(0.05, self._tick)
        await self.until(lambda: self.joined or self.failure)
        await self.until(self.at_rest)
        return self

    def _tick(self) -> None:
        self.frontier.tick()
        self.later(0.05, self._tick)

    def at_rest(self) -> bool:
        """No commit is under way, nor about to be made."""
        return not (self.frontier._busy or self.frontier._woken)

    async def turns(self, count: int = 20) -> None:
        """Let the loop go round, and the owner's clock tick, faster than it does by itself."""
        for _ in range(count):
            await asyncio.sleep(0)
            self.frontier.tick()

    async def commit(self) -> None:
        """Make it commit what it has, as if the interval were over."""
        await self.until(self.at_rest)
        before, self.limits.commit_interval = self.limits.commit_interval, 0.0
        self.frontier.tick()
        self.limits.commit_interval = before
        await self.until(self.at_rest)

    async def next(self) -> Lease:
        """The next lease, as soon as there is one."""
        lease: Lease | None = None

        def taken() -> bool:
            nonlocal lease
            lease = lease or self.frontier.next()
            return lease is not None

        await self.until(taken)
        assert lease is not None
        return lease

    async def take(self, count: int) -> list[Lease]:
        return [await self.next() for _ in range(count)]

    def add(self, *names: str, parent: Lease | None = None, key: bool = True, priority: int = 0) -> None:
        for name in names:
            self.frontier.add(page(name, key=key, priority=priority), parent.token if parent else None)

    def settle(self, *leases: Lease, items: tuple[bytes, ...] = ()) -> None:
        for lease in leases:
            self.frontier.settle(Outcome(lease.token, items=items))

    async def close(self, *, finish: bool = False) -> None:
        closed = asyncio.Event()
        self.frontier.close(closed.set, finish=finish)
        async with asyncio.timeout(PATIENCE):
            await closed.wait()


def page(name: str, *, key: bool = True, priority: int = 0, slot: str = "a") -> Entry:
    return Entry(slot=slot, payload=name.encode(), priority=priority, key=hash(name) if key else None)


def names(things: Any) -> list[str]:
    """The payloads of entries, leases or rows, as text."""
    return [thing.payload.decode() for thing in things]


def some(count: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


async def busy(store: Store, **limits: Any) -> Desk:
    """A worker that has enough to run, and 100 pages in the store."""
    desk = await Desk(store, Limits(**limits)).open()
    desk.add(*some(100))
    await desk.commit()
    return desk


def hold(store: Recording) -> threading.Event:
    """Commits wait until this is set."""
    gate = threading.Event()

    def wait(batch: Batch) -> None:
        assert gate.wait(PATIENCE)

    store.before = wait
    return gate


def sqlite(folder: Path) -> Callable[[], SqliteStore]:
    """Opens one crawl, again and again."""
    return lambda: SqliteStore(folder / "c.db", "c", durability="normal")
