"""Scrapy's scheduler interface over a :class:`~scrapy_fleet.frontier.Frontier`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from twisted.internet.defer import Deferred

from scrapy_fleet import filters
from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.capacity import Capacity
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.crawl.fingerprints import fingerprint_of
from scrapy_fleet.crawl.known import KnownUrls
from scrapy_fleet.crawl.lost import Lost
from scrapy_fleet.crawl.parents import Parents
from scrapy_fleet.crawl.repeats import Repeats
from scrapy_fleet.crawl.running import Running
from scrapy_fleet.crawl.seam import EventLoop, Seam
from scrapy_fleet.crawl.seeds import SeedCounts
from scrapy_fleet.crawl.state import SpiderState
from scrapy_fleet.crawl.stats import Numbers
from scrapy_fleet.crawl.tasks import Tasks, is_task
from scrapy_fleet.errors import FleetError, Unreadable, Unstorable
from scrapy_fleet.frontier import Frontier
from scrapy_fleet.keys import key_of, seed_key_of
from scrapy_fleet.model import Entry, Joined, Lease, Outcome, Seeding, SeenPlan
from scrapy_fleet.process import this_worker
from scrapy_fleet.seen import early_memory
from scrapy_fleet.settings import Options

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

MAX_PRIORITY = 1 << 50


class Scheduler(BaseScheduler):
    """Hands requests to the engine and takes new ones from it. Never waits, never raises.

    A request is *running* from when it is handed out until the engine, the downloader and the
    scraper have all let go of it; then its lease is settled.
    """

    flat = False
    """Priorities do not count."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Scheduler:
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.known_urls = KnownUrls(crawler)
        self.parents = Parents()
        self.seeds: set[Request] = set()
        """Requests on their way here from ``start()``."""
        self.frontier: Frontier | None = None
        self.failure: FleetError | None = None
        self.options: Options | None = None
        self._seed_counts = SeedCounts()
        self._seeds_left = False
        self._seeds_failed = False
        self.running = Running()
        self.tasks = Tasks(self)
        self._unstorable_told = False
        self._lost = Lost()
        self._closed = False

    # Opening and closing

    def open(self, spider: Spider) -> Deferred[None]:
        self.spider = spider
        opened: Deferred[None] = Deferred()
        self._opened: Deferred[None] | None = opened
        try:
            options = fleet_settings.of(self.crawler)
            self.options = options
            self.seam = Seam(self.crawler)
            self.loop = EventLoop()
        except FleetError as error:
            self.failed(error)
            return opened
        self.codec = Codec(spider)
        self.state = SpiderState(spider)
        self.numbers = Numbers(self.crawler)
        self.repeats = Repeats(spider, self.codec, self.known_urls)
        # Who wants a line for every repeat is to see those of the early memory too.
        self._capacity = Capacity(options)
        seen = options.plan.seen
        self.known_urls.limit(0 if self.repeats.all_shown else options.known_urls, early_memory(seen))
        self._local_plan = seen if seen.kind == "rolling" else SeenPlan()
        self._local_keys = filters.in_memory(self._local_plan)
        self._fingerprint = fingerprint_of(self.crawler)
        self._filtered = options.filtered
        self._seed_lane = options.seeds_apart
        assert self.crawler.stats is not None
        self._stats = self.crawler.stats
        worker = this_worker()
        self.frontier = Frontier(lambda: self._open_store(options), worker, options, self.loop, self)
        self.frontier.open(self._joined)
        return opened

    def _open_store(self, options: Options) -> Store:
        """Called on the store's thread."""
        return fleet_settings.open_store(
            options.url, options.crawl, jobdir=options.jobdir, durability=options.durability
        )

    def _joined(self, joined: Joined) -> None:
        assert self.options is not None
        self.run = joined.run
        self.state.load(joined.state)
        counts, name = joined.counts, self.options.crawl
        if joined.resumed:
            logger.info(
                "Resuming crawl %r: %d requests waiting, %d in hand elsewhere, %d done, %d dead.",
                *(name, counts.waiting, counts.leased, counts.done, counts.dead),
            )
        else:
            logger.info("Starting crawl %r.", name)
        self.loop.later(self._tick_every, self._tick)
        self.tasks.watch()
        self._resolve_open()

    def _resolve_open(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.callback(None)

    def failed(self, error: FleetError) -> None:
        """The crawl cannot go on. Nothing is lost: what was in hand comes back when it is started again."""
        self.failure = error
        logger.error("%s", error)
        if self._opened is not None:
            # Opening goes on, so that Scrapy closes in order; the engine stops as soon as it has started.
            self.crawler.signals.connect(self._stop, signals.engine_started)
            self._resolve_open()
        else:
            self._stop()

    def _stop(self) -> None:
        EventLoop().later(0, lambda: Seam(self.crawler, check=False).stop("fleet_error"))

    def close(self, reason: str) -> Deferred[None] | None:
        self._closed = True
        if self.frontier is None or self.failure is not None:
            return None
        self.numbers.hurry()
        self.gather()
        closed: Deferred[None] = Deferred()
        # Whether anything is left of the crawl, the store knows best.
        self.frontier.close(lambda: closed.callback(None), finish=reason == "finished")
        closed.addCallback(lambda _: self._say_goodbye(reason))
        return closed

    def _say_goodbye(self, reason: str) -> None:
        assert self.frontier is not None
        assert self.options is not None
        counts, name = self.frontier.counts, self.options.crawl
        self._stats.set_value("fleet/commits", self.frontier.commits)
        if counts.dead:
            logger.warning(
                "%d requests of crawl %r are dead; see why with: scrapy fleet dead %s",
                *(counts.dead, name, name),
            )
        if counts.open:
            left = "Crawl %r is not finished: %d requests are left. The same command resumes it."
            logger.info(left, name, counts.open)

    # The engine's side

    @property
    def is_over(self) -> bool:
        return self._closed or self.failure is not None

    def has_pending_requests(self) -> bool:
        if self.frontier is None or self.is_over:
            return False
        if self.running.has_local:
            return True
        if self._seeds_failed and self.frontier.seeding is Seeding.MINE:
            return not self.frontier.quiet
        if self.frontier.ended and self.frontier.emptied_once:
            self.seam.stop("fleet_store_emptied")
            return True
        return not self.frontier.ended

    def __len__(self) -> int:
        return (self.frontier.counts.waiting if self.frontier else 0) + self.running.queued

    def enqueue_request(self, request: Request) -> bool:
        """Take a request; the answer is True as long as it is not known here to be a repeat."""
        if self._closed or self.frontier is None or self.failure is not None:
            if self.failure is None:
                logger.warning("%s came after the crawl had closed and is not stored.", request)
            return False
        if (returned := self.running.take_back(request)) is not None:
            self.frontier.release(returned)
            return True
        key: int | None = None
        parent = self.parents.take(request)
        try:
            key = self._key(request)
            entry = Entry(
                slot=self.seam.slot_key(request),
                payload=self.codec.encode(request),
                priority=0 if self.flat else max(-MAX_PRIORITY, min(MAX_PRIORITY, request.priority)),
                key=key,
                seed=self._seed_lane
                and bool(request.meta.get("is_start_request") or parent in self.tasks.making),
            )
        except Exception as error:
            return self._keep_in_memory(request, parent, key, error)
        token: int | None = None
        if key is None:
            token = self.running.token(self._parent_of(parent))
            if token is not None and self.frontier.lease(token) is None:
                return False  # what it comes from has gone to another worker, where it comes again
        self.frontier.add(entry, token)
        if self._filtered and not request.dont_filter:
            self.known_urls.add(request)
        return True

    def next_request(self) -> Request | None:
        if self.frontier is None or self.failure is not None or self.frontier.held_back:
            return None
        if (local := self.running.next_local()) is not None:
            self._stats.inc_value("scheduler/dequeued")
            return local
        while (lease := self.frontier.next()) is not None:
            if lease.lost:
                self._stats.inc_value("fleet/given_up")
                self.frontier.settle(self._lost.bury(lease))
                continue
            if is_task(lease):
                self.tasks.begin(lease)
                continue
            try:
                request = self.codec.decode(lease.payload)
            except Unreadable as error:
                logger.error("A stored request cannot be read and is kept as dead: %s", error)
                self.frontier.settle(Outcome(lease.token, dead=str(error)))
                continue
            self.running.start(request, lease.token)
            self._stats.inc_value("scheduler/dequeued")
            return request
        return None

    def _key(self, request: Request) -> int | None:
        """What "seen" means for this request; None if it is not to be filtered."""
        is_seed = request in self.seeds
        self.seeds.discard(request)
        if (request.dont_filter or not self._filtered) and not is_seed:
            return None
        fingerprint = self._fingerprint(request)
        if request.dont_filter or not self._filtered:
            return seed_key_of(fingerprint, self.run, self._seed_counts.next(fingerprint))
        return key_of(fingerprint)

    def lease_of(self, request: Request) -> Lease | None:
        """The lease that a request runs under; None if it has none of its own (any more)."""
        token = self.running.own(request)
        return self.frontier.lease(token) if self.frontier is not None and token is not None else None

    def _parent_of(self, parent: Request | None) -> Request | None:
        """The request whose callback gave this one, or whose redirect or retry it is; if it can be told."""
        if parent is None:
            leaving = self.seam.leaving(self.running.all())
            if len(leaving) == 1:
                return leaving[0]
        return parent

    # Requests that cannot be stored

    def _keep_in_memory(
        self, request: Request, parent: Request | None, key: int | None, error: Exception
    ) -> bool:
        if not isinstance(error, Unstorable):
            logger.error("%s cannot be stored, it runs from memory.", request, exc_info=error)
        elif not self._unstorable_told:
            self._unstorable_told = True
            logger.warning(
                "%s cannot be stored: %s. It runs from this worker's memory, and the request it came from is "
                "repeated if this worker dies before. Others are only counted (scheduler/unserializable).",
                *(request, error),
            )
        self._stats.inc_value("scheduler/unserializable")
        if key is not None:
            if not self._local_keys.add(key, time.monotonic()):
                self.repeats.here(request)
                return False
            assert self.frontier is not None
            self.frontier.outbox.keep(marks=[key])
        self.running.keep(request, self.running.token(self._parent_of(parent)))
        self._stats.inc_value("scheduler/enqueued")
        return True

    # What the frontier asks and tells

    def gather(self) -> None:
        """Settle what Scrapy has let go of."""
        assert self.frontier is not None
        if self.seam.closing:
            self.frontier.drain()
        for outcome in self.running.finished(self.seam.active() | self.tasks.making.keys()):
            self.frontier.settle(outcome)
        if self._seeds_left and not self.running.has_orphans:
            self._seeds_left = False
            self.frontier.seeded()
        self.frontier.outbox.keep(state=self.state.changed())
        self.numbers.tell(self.frontier.outbox)

    def ready(self) -> None:
        self._obey()
        self.seam.nudge()

    def _obey(self) -> None:
        """The fleet was told to stop. (A spider that is still being opened cannot be closed yet.)"""
        if self.frontier is not None and self.frontier.mode == "stop" and self.seam.running:
            self.seam.stop("fleet_stop")

    def given_up(self) -> None:
        self.known_urls.clear()

    def emptied(self, held: list[Lease]) -> list[Entry]:
        # Links that were queued before are lost: they must be taken when they are met again.
        self.known_urls.clear()
        self._local_keys = filters.in_memory(self._local_plan)
        return [self._entry_of(lease) for lease in held]

    def _entry_of(self, lease: Lease) -> Entry:
        key: int | None = None
        try:
            key = None if is_task(lease) else self._key(self.codec.decode(lease.payload))
        except Exception as error:
            logger.warning("A request that is put back may be repeated: %s", error)
        return Entry(lease.slot, lease.payload, lease.priority, key, lease.seed)

    def added(self, accepted: int, known: list[Entry]) -> None:
        if accepted:
            self._stats.inc_value("scheduler/enqueued", accepted)
            assert self.frontier is not None
            self._capacity.look(self.frontier.counts.accepted)
        if known:
            self.repeats.in_store(known)

    def seeds_done(self) -> None:
        """``start()`` has ended. Seeds that run from memory must be done before the seeding is."""
        self._seeds_left = True
        self.gather()

    def seeds_failed(self) -> None:
        """``start()`` broke: the crawl goes on with what it gave, but is not finished when that is done."""
        self._seeds_failed = True

    # Time and the downloader

    @property
    def _tick_every(self) -> float:
        assert self.options is not None
        return max(0.05, min(0.25, self.options.commit_interval))

    def _tick(self) -> None:
        if self.frontier is None or self.is_over:
            return
        assert self.options is not None
        for request, token in self.running.older_than(self.options.max_runtime):
            self._give_up(request, token)
        self._obey()
        self.frontier.tick()
        self.loop.later(self._tick_every, self._tick)

    def _give_up(self, request: Request, token: int | None) -> None:
        assert self.options is not None
        assert self.frontier is not None
        reason = f"it did not end within {self.options.max_runtime:g} s (FLEET_MAX_RUNTIME)"
        if token is None:
            logger.error("%s, which could not be stored, is given up: %s.", request, reason)
        else:
            logger.error("%s is kept as dead: %s.", request, reason)
            self.running.forget(request)
            self.frontier.settle(Outcome(token, dead=reason))
        self.seam.abandon(request)
        self.seam.nudge()
