"""The frontier of one worker: what it may run next, and what came of what it ran.

All its state lives on the event loop's thread. One background thread talks to the store: it takes
commits, waits out troubles, beats when there is nothing to do, and posts the answers back. So the
loop never waits for the store. While one commit is under way, the next one gathers.
"""

from __future__ import annotations

import heapq
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from scrapy_fleet.errors import FleetError
from scrapy_fleet.link import Link, Loop
from scrapy_fleet.model import (
    Batch,
    Beat,
    Counts,
    Entry,
    Joined,
    Lease,
    Outcome,
    Plan,
    Receipt,
    Sample,
    Seeding,
    Worker,
)
from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

ADDS_PER_CALL = 500
"""Large batches are cut, so that no call holds the store for long."""
POLL_FIRST, POLL_LAST = 0.01, 0.25
"""How soon an idle worker asks again, at first and at last."""


class Listener(Protocol):
    """What the frontier tells its owner, always on the loop's thread."""

    def gather(self) -> None:
        """A commit is about to be made: settle what is finished, keep what has changed."""

    def ready(self) -> None:
        """Something changed: there may be requests to run, or nothing more to come."""

    def known(self, entries: list[Entry]) -> None:
        """These had been seen before."""

    def failed(self, error: FleetError) -> None:
        """The store cannot be used any more."""


class Limits(Protocol):
    """The settings that a frontier heeds."""

    @property
    def capacity(self) -> int: ...
    @property
    def lookahead(self) -> int: ...
    @property
    def commit_interval(self) -> float: ...
    @property
    def commit_size(self) -> int: ...
    @property
    def worker_timeout(self) -> float: ...
    @property
    def plan(self) -> Plan: ...


class Frontier:
    def __init__(
        self,
        open_store: Callable[[], Store],
        worker: Worker,
        limits: Limits,
        loop: Loop,
        listener: Listener,
    ) -> None:
        self.limits = limits
        self.listener = listener
        self.worker = worker
        self.counts = Counts()
        self.seeding = Seeding.OTHER
        self.on_seeding: list[Callable[[], None]] = []
        self.commits = 0
        self._loop = loop
        self._link = Link(open_store, loop, self, limits.worker_timeout)
        self._seq = 0
        self._ready: list[tuple[int, int, Lease]] = []
        self._timed: list[tuple[float, int, Lease]] = []
        self._arrived = 0
        self._held: set[int] = set()
        self._downloading: set[int] = set()
        self._adds: list[Entry] = []
        self._beside: dict[int, list[tuple[float, Entry]]] = {}
        self._outcomes: list[Outcome] = []
        self._samples: list[Sample] = []
        self._releases: list[int] = []
        self._items: list[bytes] = []
        self._marks: list[int] = []
        self._stats: dict[str, float] = {}
        self._state: dict[str, bytes | None] = {}
        self._seeded = False
        self._open = False
        self._draining = False
        self._busy = False
        self._hungry = False
        self._plenty = True
        self._poll = POLL_FIRST
        self._asked_at = 0.0
        self._oldest: float | None = None
        self._scheduled = False
        self._closing: Callable[[], None] | None = None
        self._finish = False

    # Opening and closing

    def open(self, opened: Callable[[Joined], None]) -> None:
        """Join the crawl; ``opened`` or ``listener.failed`` follows."""
        self._opened = opened
        self._link.start(self.worker, self.limits.plan)

    def close(self, closed: Callable[[], None], *, finish: bool = False) -> None:
        """Commit the rest, hand back what was not started, leave. ``closed`` follows."""
        self._closing, self._finish = closed, finish
        self._draining = True
        if not self._open:
            self._link.stop()
            closed()
        elif not self._busy:
            self._send()

    def drain(self) -> None:
        """Take nothing more, hand back what was not started; go on committing."""
        if not self._draining:
            self._draining = True
            self._hand_back()
            self._wake()

    # What the owner gives

    def add(self, entry: Entry, parent: int | None = None) -> None:
        """Queue an entry. One that no filter would recognise is committed together with its parent,
        if that ends soon: so a crash between the two does not queue it twice."""
        if entry.key is None and parent in self._held:
            self._beside.setdefault(parent, []).append((time.monotonic(), entry))
        else:
            self._adds.append(entry)
        self._note()

    def sample(self, sample: Sample) -> None:
        if sample.token in self._downloading:
            self._downloading.discard(sample.token)
            self._samples.append(sample)
            self._note()

    def settle(self, outcome: Outcome) -> None:
        """What came of a lease; nothing happens if it is not held (any more)."""
        self._downloading.discard(outcome.token)
        if outcome.token in self._held:
            self._held.discard(outcome.token)
            self._adds += (entry for _, entry in self._beside.pop(outcome.token, ()))
            self._outcomes.append(outcome)
            self._note()

    def keep(
        self,
        *,
        items: Iterable[bytes] = (),
        marks: Iterable[int] = (),
        stats: dict[str, float] | None = None,
        state: dict[str, bytes | None] | None = None,
    ) -> None:
        self._items += items
        self._marks += marks
        for name, value in (stats or {}).items():
            self._stats[name] = self._stats.get(name, 0) + value
        self._state.update(state or {})
        if self._items or self._marks:
            self._note()

    def seeded(self) -> None:
        """All seeds have been added."""
        self._seeded = True
        self._note()

    # What the owner takes

    def next(self) -> Lease | None:
        """A lease to run now."""
        if self._draining or self.congested:
            return None
        self._sort_timed()
        if not self._ready:
            if not self._hungry:
                self._hungry = True
                self._poll = POLL_FIRST
                self._wake()
            return None
        lease = heapq.heappop(self._ready)[2]
        self._downloading.add(lease.token)
        if len(self._ready) <= self.limits.lookahead // 2 and self._plenty:
            self._wake()
        return lease

    def holds(self, token: int) -> bool:
        return token in self._held

    @property
    def congested(self) -> bool:
        """More outcomes are waiting for the store than is sound: run nothing new until it has caught up."""
        return len(self._adds) > 20 * self.limits.commit_size

    @property
    def ended(self) -> bool:
        """Nothing is waiting, leased, or still to be fed, in the whole crawl."""
        return (
            self._open
            and self.seeding is Seeding.DONE
            and self.counts.open == 0
            and not (self._busy or self._pending())
        )

    @property
    def quiet(self) -> bool:
        """As :attr:`ended`, were it not for the seeds."""
        return self._open and self.counts.open == 0 and not (self._busy or self._pending())

    # Deciding when to commit

    def _pending(self) -> bool:
        return bool(
            self._adds
            or self._beside
            or self._outcomes
            or self._samples
            or self._releases
            or self._items
            or self._marks
            or (self._seeded and self.seeding is Seeding.MINE)
        )

    def _note(self) -> None:
        if self._oldest is None:
            self._oldest = time.monotonic()
        if self._hungry or len(self._adds) + len(self._outcomes) >= self.limits.commit_size:
            self._wake()

    def _wake(self) -> None:
        """Look at the end of this turn of the loop whether to commit, so that what comes together goes together."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.later(0, self._look)

    def _look(self) -> None:
        self._scheduled = False
        if self._open and not self._busy and self._is_time():
            self._send()

    def _is_time(self) -> bool:
        now = time.monotonic()
        if self._closing:
            return True
        if self._pending():
            if self._hungry or len(self._adds) + len(self._outcomes) >= self.limits.commit_size:
                return True
            if self._oldest is not None and now - self._oldest >= self.limits.commit_interval:
                return True
        if self._draining:
            return False
        if self._hungry:
            return now - self._asked_at >= self._poll
        return self._plenty and len(self._ready) <= self.limits.lookahead // 2 and self._want() > 0

    def tick(self) -> None:
        """To be called every now and then (a few times a second) by the owner."""
        if self._open and not self._busy:
            # The owner may know of requests that have finished since.
            self.listener.gather()
            self._look()

    def _want(self) -> int:
        if self._draining:
            return 0
        limits = self.limits
        ahead = limits.capacity + limits.lookahead
        # Requests whose callbacks take long hold no download slot, but there is a bound.
        room = min(
            ahead - len(self._downloading) - len(self._ready) - len(self._timed),
            10 * ahead - len(self._held),
        )
        return max(0, room)

    # Committing

    def _send(self) -> None:
        self.listener.gather()
        self._let_out()
        adds, self._adds = self._adds, []
        if adds and not self._draining:
            self._displace(min(entry.rank for entry in adds))
        pieces = [adds[i : i + ADDS_PER_CALL] for i in range(0, len(adds), ADDS_PER_CALL)] or [[]]
        batches = [
            Batch(worker=self.worker.id, seq=self._seq + i, adds=tuple(piece))
            for i, piece in enumerate(pieces)
        ]
        self._seq += len(batches)
        batches[-1] = replace(
            batches[-1],
            samples=tuple(self._samples),
            outcomes=tuple(self._outcomes),
            releases=tuple(self._releases),
            items=tuple(self._items),
            marks=tuple(self._marks),
            stats=self._stats,
            state=self._state,
            seeded=self._seeded and not self._beside,
            want=self._want(),
            leave=self._closing is not None,
            finish=self._finish,
        )
        self._samples, self._outcomes, self._releases = [], [], []
        self._items, self._marks, self._stats, self._state = [], [], {}, {}
        self._oldest = time.monotonic() if self._beside else None
        self._asked_at = time.monotonic()
        self._busy = True
        self.commits += 1
        self._link.commit(batches)

    def _let_out(self) -> None:
        """Commit what has waited for its parent long enough, or will wait no longer."""
        old = time.monotonic() - self.limits.commit_interval
        for parent in list(self._beside):
            if self._closing or parent not in self._held or self._beside[parent][0][0] <= old:
                self._adds += (entry for _, entry in self._beside.pop(parent))

    def _displace(self, best: int) -> None:
        """Give back unstarted leases that rank behind what is being added: the store knows who is next."""
        kept = [item for item in self._ready if item[0] <= best]
        if len(kept) < len(self._ready):
            self._give_back(lease for rank, _, lease in self._ready if rank > best)
            self._ready = kept
            heapq.heapify(self._ready)

    def _hand_back(self) -> None:
        self._give_back(lease for _, _, lease in self._ready + self._timed)
        self._ready, self._timed = [], []

    def _give_back(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._held.discard(lease.token)
            self._releases.append(lease.token)
            self._note()

    # What the link reports

    def joined(self, joined: Joined) -> None:
        self.counts = joined.counts
        self._open = True
        self._see_seeding(joined.seeding)
        self._opened(joined)
        self._opened = lambda joined: None
        self._wake()

    def committed(self, batches: list[Batch], receipts: list[Receipt]) -> None:
        self._busy = False
        for batch, receipt in zip(batches, receipts, strict=True):
            if receipt.known:
                self.listener.known([batch.adds[i] for i in receipt.known])
        last, receipt = batches[-1], receipts[-1]
        self.counts = receipt.counts
        if last.seeded and receipt.seeding is Seeding.DONE:
            self._seeded = False
        self._see_seeding(receipt.seeding)
        if last.leave:
            self._open = False
            self._link.stop()
            if self._closing:
                self._closing()
            return
        self._plenty = len(receipt.leases) == last.want
        self._take(receipt.leases)
        if receipt.leases:
            self._hungry, self._poll = False, POLL_FIRST
        else:
            self._poll = min(2 * self._poll, POLL_LAST)
        if receipt.retry_in is not None:
            self._poll = min(self._poll, max(receipt.retry_in, 0.001))
        if self._hungry:
            self._loop.later(self._poll, self._wake)
        if receipt.leases or self.ended or self.quiet:
            self.listener.ready()
        self._wake()

    def _take(self, leases: Iterable[Lease]) -> None:
        now = time.monotonic()
        soonest = None
        for lease in leases:
            self._arrived += 1
            self._held.add(lease.token)
            if lease.delay > 0.001:
                heapq.heappush(self._timed, (now + lease.delay, self._arrived, lease))
                soonest = lease.delay if soonest is None else min(soonest, lease.delay)
                self._loop.later(lease.delay, self.listener.ready)
            else:
                heapq.heappush(self._ready, (lease.rank, self._arrived, lease))
        if self._draining:
            self._hand_back()

    def _sort_timed(self) -> None:
        now = time.monotonic() + 0.001
        while self._timed and self._timed[0][0] <= now:
            _, arrived, lease = heapq.heappop(self._timed)
            heapq.heappush(self._ready, (lease.rank, arrived, lease))

    def beaten(self, beat: Beat) -> None:
        self._see_seeding(beat.seeding)
        if not self._busy:
            self.counts = beat.counts
        if beat.reaped:
            logger.warning("%d requests came back from workers that died; they run again.", beat.reaped)
            self._poll = POLL_FIRST
            self._wake()

    def _see_seeding(self, seeding: Seeding) -> None:
        if seeding is not self.seeding:
            self.seeding = seeding
            waiting, self.on_seeding = self.on_seeding, []
            for call in waiting:
                call()

    def given_up(self, batches: list[Batch]) -> None:
        """Others have what this worker held. Keep what was found (it is recognised if it was stored),
        forget the rest, and come back under a new name."""
        logger.warning(
            "This worker (%s) was silent for more than %g s and was given up; what it held went to others. "
            "It goes on under a new name. Raise FLEET_WORKER_TIMEOUT if this happens often.",
            self.worker.id,
            self.limits.worker_timeout,
        )
        self._busy = self._open = False
        self._ready, self._timed, self._releases = [], [], []
        self._held.clear()
        self._downloading.clear()
        self._outcomes, self._samples, self._beside = [], [], {}
        self._adds = [entry for batch in batches for entry in batch.adds] + self._adds
        for batch in batches:
            self._items += batch.items
            self._marks += batch.marks
            self._state = {**batch.state, **self._state}
            for name, value in batch.stats.items():
                self._stats[name] = self._stats.get(name, 0) + value
        self.worker = replace(self.worker, id=new_name(self.worker))
        self._seq = 0
        self._link.join(self.worker, self.limits.plan)

    def failed(self, error: FleetError) -> None:
        self._open = self._busy = False
        self.listener.failed(error)
        if self._closing:
            self._closing()


def new_name(worker: Worker) -> str:
    return f"{worker.host}-{worker.pid}-{uuid.uuid4().hex[:8]}"
