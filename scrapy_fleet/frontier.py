"""The frontier of one worker: what it may run next, and what came of what it ran.

All its state lives on the event loop's thread. One background thread (:mod:`scrapy_fleet.link`)
talks to the store and posts the answers back, so the loop never waits for the store. While one
commit is under way, the next one gathers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from scrapy_fleet import model
from scrapy_fleet.ahead import Ahead
from scrapy_fleet.alarm import Alarm
from scrapy_fleet.errors import FleetError
from scrapy_fleet.link import Link
from scrapy_fleet.model import Batch, Counts, Entry, Lease, Mode, Notice, Outcome, Sample, Seeding, Worker
from scrapy_fleet.news import EMPTIED, GIVEN_UP, TOLD
from scrapy_fleet.outbox import Outbox
from scrapy_fleet.politeness import REFUSALS
from scrapy_fleet.ports import Limits, Listener, Loop
from scrapy_fleet.process import new_name
from scrapy_fleet.store.base import MAX_WANT, Store
from scrapy_fleet.timing import Timing

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Frontier:
    def __init__(
        self,
        open_store: Callable[[], Store],
        worker: Worker,
        limits: Limits,
        loop: Loop,
        listener: Listener,
    ) -> None:
        self.limits, self.listener, self.worker = limits, listener, worker
        self.counts = Counts()
        self.run: int | None = None
        self.seeding = Seeding.OTHER
        self.on_seeding: list[Callable[[], None]] = []
        self.mode: Mode = "run"
        """What the fleet was told, as far as it is known here."""
        self.commits, self.workers = 0, 1
        self.outbox = Outbox(limits.commit_interval)
        self._loop = loop
        self._link = Link(open_store, loop, self, limits.worker_timeout)
        self._seq, self.ahead = 0, Ahead()
        self._alarm = Alarm(loop, self.ahead.ripen, listener.ready)
        self._held: dict[int, Lease] = {}
        self._returned: dict[int, Lease] = {}
        """Handed back, but not committed yet."""
        self._downloading: set[int] = set()
        self._opened: Callable[[model.Joined], None] = lambda joined: None
        self._closed: Callable[[], None] | None = None
        self._finish = self._seeded = self._open = self._over = False
        self.emptied_once = False
        """The store lost the crawl while it was under way: whatever comes, it is not finished."""
        self._draining = self._busy = self._woken = False
        self.timing = Timing(limits, self.outbox, self.ahead, lambda delay: loop.later(delay, self._wake))

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
            self._give_back(self.ahead.all())
            self._wake()

    # What the owner gives

    def add(self, entry: Entry, parent: int | None = None) -> None:
        """Queue an entry; ``parent`` is the lease it comes from, if it is known and held."""
        self.outbox.add(entry, parent)
        self._hurry()

    def sample(self, sample: Sample) -> None:
        """A download has ended; nothing happens if it is not under way (any more)."""
        if sample.token not in self._downloading:
            return
        self._downloading.discard(sample.token)
        self.begin(sample.token)  # an answer may be faster than the word of the start
        slot = self._held[sample.token].slot
        if sample.status in REFUSALS:
            # The others learn from the store that this slot is to be left alone.
            self._give_back(self.ahead.of_slot(slot))
        elif self.ahead.spares and (spare := self.ahead.promote(slot)) is not None:
            sample = replace(sample, then=spare.token)
            self.listener.ready()
        self.outbox.sample(sample, slot)
        self._hurry()

    def notice(self, notice: Notice) -> None:
        """Something was learnt about a slot."""
        if notice.status in REFUSALS:
            self._give_back(self.ahead.of_slot(notice.slot))
        self.outbox.notice(notice)
        self._hurry()

    def ask(self, call: Callable[[Store], T], answer: Callable[[T | None], None]) -> None:
        """Have the store asked something else, without waiting; None if it could not be."""
        self._link.ask(call, answer)

    def settle(self, outcome: Outcome) -> None:
        """What came of a lease; nothing happens if it is not held (any more)."""
        if self.ahead.spares and outcome.token in self._downloading:
            self.sample(Sample(outcome.token))  # it ended without a download: another may take its room
        self._downloading.discard(outcome.token)
        if self.ahead.paced:
            self.begin(outcome.token)  # of one that was not sent, nothing else will be told
        if self._held.pop(outcome.token, None) is not None:
            self.outbox.settle(outcome)
            self._hurry()

    def release(self, token: int) -> None:
        """A lease that came to nothing goes back as it was; nothing happens if it is not held (any more)."""
        self._downloading.discard(token)
        if token in self._held:
            self._give_back([self._held[token]])
            self._hurry()

    def seeded(self) -> None:
        """All seeds have been added."""
        self._seeded = True
        self._wake()

    def lease(self, token: int) -> Lease | None:
        """A lease that is held."""
        return self._held.get(token)

    def is_late(self, token: int) -> bool:
        """Whether a lease that is about to be sent has missed its time."""
        return (lease := self._held.get(token)) is not None and self.ahead.is_late(lease)

    def begin(self, token: int) -> None:
        """The download of a lease has begun."""
        lease = self._held.get(token) if self.ahead.paced else None
        if lease is not None and (start := self.ahead.begin(lease)) is not None:
            self.outbox.start(start)

    # What the owner takes

    def next(self) -> Lease | None:
        """A lease to run now."""
        if self._draining or self.held_back or self.congested:
            return None
        while (lease := self.ahead.take()) is not None and self.ahead.is_late(lease):
            self._give_back([lease])
        if lease is None:
            if self.timing.starve():
                self._wake()
            return None
        self._downloading.add(lease.token)
        if not (self._woken or self._busy) and self.timing.is_low and self._want() > 0:
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
        left = self.counts.open or self.counts.feeding
        return self._open and not (left or self._busy or self._pending())

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
        if self.timing.hungry or self.outbox.size >= self.limits.commit_size:
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
        pending = self._pending()
        if self._closed or (pending and self.held_back):
            return True
        waiting, free = self.counts.waiting, self.limits.capacity - len(self._downloading)
        return self.timing.is_time(pending=pending, waiting=waiting, free=free, want=self._want())

    def _want(self) -> int:
        if self._draining or self.held_back:
            return 0
        ahead = self.limits.capacity + self.limits.lookahead
        # Requests whose callbacks take long hold no download slot, but there is a bound.
        room = min(ahead - len(self._downloading) - len(self.ahead), 10 * ahead - len(self._held))
        return self.ahead.limit(max(0, min(room, MAX_WANT)))

    # Committing

    def _send(self) -> None:
        self.listener.gather()
        if not self._draining and (best := self.outbox.best_rank) is not None:
            # What ranks behind goes back: the store knows who is next.
            self._give_back(self.ahead.behind(best))
        if self.ahead.spares:
            running = {self._held[token].slot for token in self._downloading}
            self._give_back(self.ahead.stranded(running))
        closing = self._closed is not None
        batches = self.outbox.pack(self.worker.id, self._seq, everything=closing or self._seeded)
        self._seq += len(batches)
        seeded = self._seeded and not self.emptied_once
        batches[-1] = replace(
            batches[-1], seeded=seeded, want=self._want(), leave=closing, finish=self._finish
        )
        self.timing.asked()
        self._busy = True
        self.commits += 1
        self._link.commit(batches)

    def _give_back(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._returned[lease.token] = self._held.pop(lease.token)
            self.ahead.forget(lease.token)
            self.outbox.release(lease.token)

    # What the link reports

    def joined(self, joined: model.Joined) -> None:
        self.counts, self.run, self._open = joined.counts, joined.run, True
        self._see_seeding(joined.seeding)
        opened, self._opened = self._opened, lambda joined: None
        opened(joined)
        self._see_mode(joined.mode)
        self._wake()

    def committed(
        self, batches: list[Batch], receipts: list[model.Receipt], span: tuple[float, float]
    ) -> None:
        self._busy = False
        for batch, receipt in zip(batches, receipts, strict=True):
            if batch.adds:
                known = [batch.adds[i] for i in receipt.known]
                self.listener.added(len(batch.adds) - len(known), known)
            for token in batch.releases:
                self._returned.pop(token, None)
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
        for slot in receipt.held:
            self._give_back(self.ahead.of_slot(slot))
        self._take(receipt.leases, *span)
        self.timing.answered(batch, receipt)
        if receipt.leases or self.quiet or self.ended:
            self.listener.ready()
        self._look()

    def _take(self, leases: Iterable[Lease], sent: float, answered: float) -> None:
        for lease in leases:
            # A spare that is late for its room, but not too late.
            has_room = lease.spare and self.outbox.take_room(lease.slot, lease.token)
            self._held[lease.token] = lease
            self.ahead.put(lease, sent, answered, has_room=has_room)
        if self._draining or self.held_back:
            self._give_back(self.ahead.all())
        self._alarm.set()

    def beaten(self, beat: model.Beat) -> None:
        self._see_seeding(beat.seeding)
        news = beat.counts.waiting > 0 and self.counts.waiting == 0
        if not self._busy:
            self.counts = beat.counts
        self._see_mode(beat.mode)
        self.workers = beat.workers
        if beat.reaped:
            logger.warning("%d requests came back from workers that died; they run again.", beat.reaped)
        if beat.reaped or news:
            self.timing.news()
            self._wake()
        if self.quiet or self.ended:
            self.listener.ready()

    def _see_mode(self, mode: Mode) -> None:
        if mode == self.mode or self.mode == "stop":  # who has begun to stop does not go on
            return
        self.mode = mode
        logger.info(TOLD[mode])
        if mode == "run":
            self.timing.resume()
        elif mode == "pause":
            self._give_back(self.ahead.all())
        else:
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
        logger.warning(GIVEN_UP, self.worker.id, self.limits.worker_timeout)
        self.listener.given_up()
        self._come_back(batches)

    def emptied(self, batches: list[Batch], error: FleetError) -> None:
        """The store has lost the crawl. Put back what this worker has of it, and go on with that."""
        logger.critical(EMPTIED, error, len(self._held) + len(self._returned))
        self.emptied_once = True
        held = self.listener.emptied([*self._held.values(), *self._returned.values()])
        self._come_back(batches)
        for entry in held:
            self.outbox.add(entry, None)

    def _come_back(self, batches: list[Batch]) -> None:
        self._busy = self._open = False
        self.ahead.clear()
        self._held.clear()
        self._returned.clear()
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
