"""The frontier of one worker: what it may run next, and what came of what it ran.

All its state lives on the event loop's thread. One background thread (:mod:`scrapy_fleet.link`)
talks to the store and posts the answers back, so the loop never waits for the store. While one
commit is under way, the next one gathers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from scrapy_fleet import model
from scrapy_fleet.ahead import SOON, Ahead
from scrapy_fleet.errors import FleetError
from scrapy_fleet.link import Link
from scrapy_fleet.model import Batch, Counts, Entry, Lease, Mode, Outcome, Sample, Seeding, Worker
from scrapy_fleet.outbox import Outbox
from scrapy_fleet.ports import Limits, Listener, Loop
from scrapy_fleet.process import new_name
from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

POLL_FIRST, POLL_LAST = 0.01, 0.25
"""How soon an idle worker asks again, at first and at last."""
GRACE = 0.005
"""How long the end of a download waits for what comes of it, where the order is strict."""


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
        self.run: int | None = None
        self.seeding = Seeding.OTHER
        self.on_seeding: list[Callable[[], None]] = []
        self.mode: Mode = "run"
        """What the fleet was told, as far as it is known here."""
        self.commits = 0
        self.outbox = Outbox(limits.commit_interval)
        self._loop = loop
        self._link = Link(open_store, loop, self, limits.worker_timeout)
        self._seq = 0
        self._ahead = Ahead()
        self._held: dict[int, Lease] = {}
        self._downloading: set[int] = set()
        self._opened: Callable[[model.Joined], None] = lambda joined: None
        self._closed: Callable[[], None] | None = None
        self._finish = False
        self._seeded = False
        self._open = False
        self._over = False
        self.emptied_once = False
        """The store lost the crawl while it was under way: whatever comes, it is not finished."""
        self._draining = False
        self._busy = False
        self._hungry = False
        self._plenty = True
        self._poll = POLL_FIRST
        self._asked_at = 0.0
        self._woken = False
        self._patient = False

    # Opening and closing

    def open(self, opened: Callable[[model.Joined], None]) -> None:
        """Join the crawl; ``opened`` or ``listener.failed`` follows."""
        self._opened = opened
        self._link.start(self.worker, self.limits.plan)

    def close(self, closed: Callable[[], None], *, finish: bool = False) -> None:
        """Commit the rest, hand back what was not started, leave. ``closed`` follows."""
        self._closed, self._finish = closed, finish
        self._link.closing()
        self.drain()
        if not self._open and self.run is None:
            self._link.stop()
            closed()
        else:
            self._wake()

    def drain(self) -> None:
        """Take nothing more, hand back what was not started; go on committing."""
        if not self._draining:
            self._draining = True
            self._hand_back()
            self._wake()

    # What the owner gives

    def add(self, entry: Entry, parent: int | None = None) -> None:
        """Queue an entry; ``parent`` is the lease it comes from, if it is known and held."""
        self.outbox.add(entry, parent)
        self._hurry()

    def sample(self, sample: Sample) -> None:
        if sample.token in self._downloading:
            self._downloading.discard(sample.token)
            self.outbox.sample(sample)
            self._hurry()

    def settle(self, outcome: Outcome) -> None:
        """What came of a lease; nothing happens if it is not held (any more)."""
        self._downloading.discard(outcome.token)
        if outcome.token in self._held:
            del self._held[outcome.token]
            self.outbox.settle(outcome)
            self._hurry()

    def seeded(self) -> None:
        """All seeds have been added."""
        self._seeded = True
        self._wake()

    def holds(self, token: int) -> bool:
        return token in self._held

    # What the owner takes

    def next(self) -> Lease | None:
        """A lease to run now."""
        if self._draining or self.held_back or self.congested:
            return None
        lease = self._ahead.take()
        if lease is None:
            if not self._hungry:
                self._hungry = True
                self._poll = POLL_FIRST
                self._wake()
            return None
        self._downloading.add(lease.token)
        if self._is_low():
            self._wake()
        return lease

    @property
    def held_back(self) -> bool:
        """The fleet was told to pause or to stop: run nothing new."""
        return self.mode != "run"

    @property
    def congested(self) -> bool:
        """More children are waiting for the store than is sound: run nothing new until it has caught up."""
        return self.outbox.waiting_adds > 20 * self.limits.commit_size

    @property
    def ended(self) -> bool:
        """Nothing is waiting, leased, or still to be fed, in the whole crawl; or it goes on without us."""
        if self._over:
            return not (self._busy or self._pending())
        return self.quiet and (self.seeding is Seeding.DONE or self.emptied_once)

    @property
    def quiet(self) -> bool:
        """As :attr:`ended`, were it not for the seeds."""
        return self._open and self.counts.open == 0 and not (self._busy or self._pending())

    # Deciding when to commit

    def tick(self) -> None:
        """To be called a few times a second by the owner."""
        if self._open and not self._busy:
            # The owner may know of requests that have finished since.
            self.listener.gather()
            self._look()

    def _pending(self) -> bool:
        return bool(self.outbox) or (self._seeded and self.seeding is Seeding.MINE and not self.emptied_once)

    def _hurry(self) -> None:
        if self._hungry or self.outbox.size >= self.limits.commit_size:
            self._wake()

    def _wake(self) -> None:
        """Look at the end of this turn of the loop whether to commit: what comes together goes together."""
        if not self._woken:
            self._woken = True
            self._loop.later(0, self._look)

    def _look(self) -> None:
        self._woken = False
        if self._open and not self._busy and self._is_time():
            self._send()

    def _is_time(self) -> bool:
        if self._closed:
            return True
        if self._pending():
            idle = self._starves() and not (self.outbox.only_samples and self._may_wait())
            if idle or self.held_back or self.outbox.size >= self.limits.commit_size:
                return True
            if self.outbox.age >= self.limits.commit_interval or not self.outbox:
                return True
        if self._draining or self.held_back:
            return False
        if self._hungry:
            return time.monotonic() - self._asked_at >= self._poll
        return self._is_low()

    def _starves(self) -> bool:
        """Nothing to run, and not only few download slots free: those can wait for others to come."""
        few = self.limits.capacity - len(self._downloading) < self.limits.capacity // 8
        if self._hungry and few and not self._patient:
            self._patient = True
            self._loop.later(POLL_FIRST, self._lose_patience)
        return self._hungry and not few

    def _lose_patience(self) -> None:
        self._patient = False
        self._wake()

    def _may_wait(self) -> bool:
        """Whether the end of a download can wait for what comes of it: nothing else is there to be had,
        or the order is strict, and a redirect or a link that is next must be there before it is asked."""
        strict = self.limits.lookahead == 0 and self.outbox.age < GRACE
        if strict:
            self._loop.later(GRACE, self._wake)
        return strict or self.counts.waiting == 0

    def _is_low(self) -> bool:
        """Whether to ask for more before the last lease is taken, as long as asking brought enough."""
        return self._plenty and self._ahead.ready <= self.limits.lookahead // 2 and self._want() > 0

    def _want(self) -> int:
        if self._draining or self.held_back:
            return 0
        ahead = self.limits.capacity + self.limits.lookahead
        # Requests whose callbacks take long hold no download slot, but there is a bound.
        room = min(
            ahead - len(self._downloading) - len(self._ahead),
            10 * ahead - len(self._held),
        )
        return max(0, room)

    # Committing

    def _send(self) -> None:
        self.listener.gather()
        if not self._draining and (best := self.outbox.best_rank) is not None:
            # What ranks behind goes back: the store knows who is next.
            self._give_back(self._ahead.behind(best))
        closing = self._closed is not None
        batches = self.outbox.pack(self.worker.id, self._seq, everything=closing or self._seeded)
        self._seq += len(batches)
        batches[-1] = replace(
            batches[-1],
            seeded=self._seeded and not self.emptied_once,
            want=self._want(),
            leave=closing,
            finish=self._finish,
        )
        self._asked_at = time.monotonic()
        self._busy = True
        self.commits += 1
        self._link.commit(batches)

    def _hand_back(self) -> None:
        self._give_back(self._ahead.all())

    def _give_back(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._held.pop(lease.token, None)
            self.outbox.release(lease.token)

    # What the link reports

    def joined(self, joined: model.Joined) -> None:
        self.counts, self.run = joined.counts, joined.run
        self._open = True
        self._see_seeding(joined.seeding)
        opened, self._opened = self._opened, lambda joined: None
        opened(joined)
        self._see_mode(joined.mode)
        self._wake()

    def committed(self, batches: list[Batch], receipts: list[model.Receipt]) -> None:
        self._busy = False
        for batch, receipt in zip(batches, receipts, strict=True):
            if batch.adds:
                known = [batch.adds[i] for i in receipt.known]
                self.listener.added(len(batch.adds) - len(known), known)
        batch, receipt = batches[-1], receipts[-1]
        self.counts = receipt.counts
        if batch.leave:
            self._open = False
            self._link.stop()
            if self._closed:
                self._closed()
            return
        if batch.seeded:
            self._seeded = False
        self._see_seeding(receipt.seeding)
        self._see_mode(receipt.mode)
        self._take(receipt.leases)
        self._plan_next(batch, receipt)
        if receipt.leases or self.quiet or self.ended:
            self.listener.ready()
        self._wake()

    def _take(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._held[lease.token] = lease
            if not self._ahead.put(lease):
                self._loop.later(lease.delay, self.listener.ready)
        if self._draining or self.held_back:
            self._hand_back()

    def _plan_next(self, batch: Batch, receipt: model.Receipt) -> None:
        """When to ask again, if there is nothing to run."""
        self._plenty = len(receipt.leases) == batch.want
        if receipt.leases:
            self._hungry, self._poll = False, POLL_FIRST
            return
        self._poll = min(2 * self._poll, POLL_LAST)
        if receipt.retry_in is not None:
            self._poll = min(self._poll, max(receipt.retry_in, SOON))
        if self._hungry:
            self._loop.later(self._poll, self._wake)

    def beaten(self, beat: model.Beat) -> None:
        self._see_seeding(beat.seeding)
        if not self._busy:
            self.counts = beat.counts
        self._see_mode(beat.mode)
        if beat.reaped:
            logger.warning("%d requests came back from workers that died; they run again.", beat.reaped)
            self._poll = POLL_FIRST
            self._wake()

    def _see_mode(self, mode: Mode) -> None:
        if mode == self.mode or self.mode == "stop":  # who has begun to stop does not go on
            return
        self.mode = mode
        if mode == "run":
            logger.info("The crawl was resumed.")
            self._hungry, self._plenty, self._poll = False, True, POLL_FIRST
        elif mode == "pause":
            logger.info("The crawl is paused: what is in flight ends, nothing new runs until it is resumed.")
            self._hand_back()
        else:
            logger.info("The fleet was told to stop: what is in flight ends, then this worker leaves.")
            self.drain()
        self._wake()
        self.listener.ready()

    def _see_seeding(self, seeding: Seeding) -> None:
        if self.seeding is Seeding.DONE and seeding is not Seeding.DONE and not self.emptied_once:
            # It has been begun anew by others. This worker's seeds are spent: it takes no part.
            self._over = True
            self.drain()
            self.listener.ready()
        elif seeding is not self.seeding or self.emptied_once:
            # Seeds that were lost with the store are left to the next start: nobody needs to wait for them.
            self.seeding = seeding
            waiting, self.on_seeding = self.on_seeding, []
            for call in waiting:
                call()

    def given_up(self, batches: list[Batch]) -> None:
        """Others have what this worker held. Keep what was found, forget the rest, come back anew."""
        logger.warning(
            "This worker (%s) was silent for more than %g s and was given up; what it held went to others. "
            "It goes on under a new name. Raise FLEET_WORKER_TIMEOUT if this happens often.",
            *(self.worker.id, self.limits.worker_timeout),
        )
        self._come_back(batches)

    def emptied(self, batches: list[Batch], error: FleetError) -> None:
        """The store has lost the crawl. Put back what this worker has of it, and go on with that."""
        logger.critical(
            "%s This worker puts back the %d requests it holds and goes on. The crawl does not count "
            "as finished; when it is started again, it starts from its seeds.",
            *(error, len(self._held)),
        )
        self.emptied_once = True
        held = self.listener.emptied(list(self._held.values()))
        self._come_back(batches)
        for entry in held:
            self.outbox.add(entry, None)

    def _come_back(self, batches: list[Batch]) -> None:
        self._busy = self._open = False
        self._ahead = Ahead()
        self._held.clear()
        self._downloading.clear()
        self.outbox.take_back(batches)
        self.worker = replace(self.worker, id=new_name(self.worker.host, self.worker.pid))
        # Tokens derive from the number of the batch: it goes on, so that no old one is met again.
        self._link.join(self.worker, self.limits.plan, self.run)

    def unsent(self, batches: list[Batch]) -> None:
        self.outbox.take_back(batches)

    def failed(self, error: FleetError) -> None:
        self._open = self._busy = False
        self.listener.failed(error)
        if self._closed:
            self._closed()
