"""Scrapy's way to schedule, over a queue class of the user's own.

The queue is asked from Scrapy's loop, and nothing in it is leased, so not all that the fleet promises holds:
see docs/queues.md. What was popped is written down beside it until it is done.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.in_hand import InHand
from scrapy_fleet.crawl.queue_index import QueueIndex
from scrapy_fleet.crawl.seam import EventLoop, Seam, stop_soon
from scrapy_fleet.errors import FleetError, SettingError, StoreAway, StoreError, TransientError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

SETTLE_EVERY = 0.25
"""Seconds after which what has ended is struck off."""
ASK_AGAIN = 0.5
"""Seconds until a queue that has requests but gave none is asked again."""


class Guarded:
    """A queue that no popped request is lost from.

    It is written down before the queue may be closed, as is done with an empty one; and a length that cannot
    be told, which the priority queue asks for right after it has popped, comes to nothing worse than a stop.
    """

    def __init__(self, queue: Any, scheduler: QueueScheduler) -> None:
        self._queue = queue
        self._scheduler = scheduler

    def pop(self) -> Request | None:
        request: Request | None = self._queue.pop()
        if request is not None:
            self._scheduler.in_hand.start(request)
        return request

    def __len__(self) -> int:
        try:
            return len(self._queue)
        except Exception as error:
            self._scheduler.fail(error)
            return 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Maker:
    """Makes queues, and tells their own ValueErrors from those that mean "put it into memory"."""

    def __init__(self, queue: Any, scheduler: QueueScheduler) -> None:
        self.queue = load_object(queue)
        self.name = f"{self.queue.__module__}.{self.queue.__qualname__}"
        self._scheduler = scheduler

    def from_crawler(self, crawler: Crawler, key: str) -> Guarded:
        try:
            return Guarded(build_from_crawler(self.queue, crawler, key), self._scheduler)
        except TransientError:
            raise
        except Exception as error:
            reason = str(error) or repr(error)
            raise StoreError(f"The queue {self.name} cannot be made for {key!r}: {reason}") from error


class QueueScheduler(BaseScheduler):
    """Never raises. What goes wrong with the queue for good stops the crawl, as ``fleet_error``."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> QueueScheduler:
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.failure: Exception | None = None
        self._open = False
        self._asking = False
        self._told: set[str] = set()

    # Opening and closing

    def open(self, spider: Spider) -> Deferred[None] | None:
        self.spider = spider
        assert self.crawler.stats is not None
        self._stats = self.crawler.stats
        try:
            self._prepare()
        except Exception as error:
            self.failure = error
            logger.error("The crawl is not started. %s", error, exc_info=not isinstance(error, FleetError))
            if hasattr(self, "in_hand"):
                self.in_hand.close()
            # Opening goes on, so that Scrapy closes in order; the engine stops as soon as it has started.
            self.crawler.signals.connect(self._stop, signals.engine_started)
            return None
        self._open = True
        EventLoop().later(SETTLE_EVERY, self._settle)
        opened: Deferred[None] | None = self.seen.open()
        return opened

    def _prepare(self) -> None:
        settings = self.crawler.settings
        if not settings.get("JOBDIR"):
            raise SettingError("A queue of your own needs JOBDIR, or the add-on, which chooses one.")
        folder = Path(settings["JOBDIR"], "requests.queue")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.in_hand = InHand(folder / "in-hand.db", self.spider)
        except StoreAway as error:
            raise StoreError(
                f"{folder} cannot be used, perhaps because another process crawls with it: {error}"
            ) from error
        self._finished = folder / "finished"
        self._forget_finished()
        self.seen = build_from_crawler(load_object(settings["DUPEFILTER_CLASS"]), self.crawler)
        kind = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
        starts = settings["SCHEDULER_START_MEMORY_QUEUE"]
        self.memory = build_from_crawler(
            kind,
            self.crawler,
            downstream_queue_cls=load_object(settings["SCHEDULER_MEMORY_QUEUE"]),
            key="",
            start_queue_cls=load_object(starts) if starts else None,
        )
        made_of = Maker(settings["SCHEDULER_DISK_QUEUE"], self)
        starts = settings["SCHEDULER_START_DISK_QUEUE"]
        if starts and not settings.getpriority("SCHEDULER_START_DISK_QUEUE"):
            starts = made_of.queue  # Scrapy's default would pickle start requests into files
        self._seam = Seam(self.crawler)
        self._index = QueueIndex(folder, kind, self._seam)
        self.queue = build_from_crawler(
            kind,
            self.crawler,
            downstream_queue_cls=made_of,
            key=str(folder),
            startprios=self._index.read(),
            start_queue_cls=Maker(starts, self) if starts else None,
        )
        _try_out(self.queue)
        if self.failure is not None:
            raise self.failure
        logger.warning(
            "Requests are kept in %s, not in the fleet's store: one process crawls, with delays of its own, "
            "and start() runs again when the crawl is resumed.",
            made_of.name,
        )
        self._resume()

    def _forget_finished(self) -> None:
        """As everywhere in the fleet: a finished crawl that is started again begins anew."""
        if self._finished.exists():
            self._finished.unlink()
            if fleet_settings.get(self.crawler.settings, "FLEET_ON_FINISH") == "clear":
                for name in ("requests.seen", "spider.state"):
                    self._finished.parent.with_name(name).unlink(missing_ok=True)

    def _resume(self) -> None:
        left = self.in_hand.left_over(fleet_settings.get(self.crawler.settings, "FLEET_MAX_ATTEMPTS"))
        for request in left:
            self.memory.push(request)
        if len(self.queue) or left:
            logger.info(
                "Resuming crawl: %d requests waiting, and %d that an earlier process had in hand.",
                *(len(self.queue), len(left)),
            )

    def fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            logger.error(
                "The queue failed, so the crawl stops: %s", error, exc_info=not isinstance(error, FleetError)
            )
            if self._open:
                self._stop()

    def _stop(self) -> None:
        stop_soon(self.crawler, "fleet_error")

    def _settle(self) -> None:
        if self._open:
            # What Scrapy's filter has in its buffer only would be fetched once more after a crash.
            if (file := getattr(self.seen, "file", None)) is not None:
                with suppress(OSError):
                    file.flush()
            self.in_hand.settle(self._seam.active())
            EventLoop().later(SETTLE_EVERY, self._settle)

    def close(self, reason: str) -> Deferred[None] | None:
        if not self._open:
            return None
        self._open = False
        try:
            self._move_out_of_memory()
            self.in_hand.settle(self._seam.active())
            self.in_hand.close()
            is_empty = len(self.queue) == 0
            self._index.write(self.queue.close())
            if reason == "finished" and is_empty:
                self._finished.touch()
        except Exception as error:
            logger.error("The queue could not be closed: %s", error, exc_info=True)
        closed: Deferred[None] | None = self.seen.close(reason)
        return closed

    def _move_out_of_memory(self) -> None:
        """What the queue could not take before, it may take now."""
        kept = lost = 0
        is_away = self.failure is not None
        while (request := self.memory.pop()) is not None:
            if not is_away:
                try:
                    self._index.note(request)
                    self.queue.push(request)
                    self.in_hand.drop(request)
                    continue
                except Exception as error:
                    is_away = isinstance(error, TransientError) or not isinstance(error, ValueError)
            if self.in_hand.has(request):
                kept += 1
            else:
                lost += 1
        if kept:
            logger.info("%d requests that the queue could not take are kept in %s.", kept, self.in_hand.path)
        if lost:
            logger.error("%d requests were in memory and cannot be stored: they are lost.", lost)

    # The engine's side

    def has_pending_requests(self) -> bool:
        return self.failure is not None or len(self) > 0

    def __len__(self) -> int:
        if not self._open:
            return 0
        return len(self.memory) + len(self.queue)

    def enqueue_request(self, request: Request) -> bool:
        if not self._open:
            if self.failure is None:
                logger.warning("%s came after the crawl had closed and is not stored.", request)
            return False
        try:
            if not request.dont_filter and self.seen.request_seen(request):
                self.seen.log(request, self.spider)
                return False
            kept = self._push(request)
        except Exception as error:
            self.fail(error)
            kept = "memory"
        if kept == "memory":
            self.in_hand.keep(request)
            self.memory.push(request)
        self._stats.inc_value(f"scheduler/enqueued/{kept}")
        self._stats.inc_value("scheduler/enqueued")
        return True

    def _push(self, request: Request) -> str:
        if self.failure is not None:
            return "memory"
        try:
            self._index.note(request)
            self.queue.push(request)
        except TransientError as error:
            self._stats.inc_value("fleet/queue_away")
            self._tell("away", "%s waits in memory, the queue cannot take it now: %s", request, error)
        # SerializationError is one; so is what Scrapy's own queues raise for what they cannot serialise.
        except ValueError as error:
            self._stats.inc_value("scheduler/unserializable")
            self._tell("unserializable", "%s waits in memory, it cannot be stored: %s", request, error)
        else:
            return "disk"
        return "memory"

    def _tell(self, what: str, text: str, *args: object) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning(f"{text} Others are only counted.", *args)

    def next_request(self) -> Request | None:
        if not self._open or self.failure is not None:
            return None
        kept = "memory"
        request: Request | None = self.memory.pop()
        if request is not None:
            self.in_hand.start(request)
        else:
            kept = "disk"
            try:
                request = self.queue.pop()
                if request is None and len(self.queue) > 0:
                    self._ask_again()
            except Exception as error:
                self.fail(error)
        if request is not None:
            self._stats.inc_value(f"scheduler/dequeued/{kept}")
            self._stats.inc_value("scheduler/dequeued")
        return request

    def _ask_again(self) -> None:
        """A passing problem: there are requests, but none came. The engine would wait for 5 s."""
        if not self._asking:
            self._asking = True
            EventLoop().later(ASK_AGAIN, self._nudge)

    def _nudge(self) -> None:
        self._asking = False
        if self._open:
            self._seam.nudge()


def _try_out(queue: Any) -> None:
    """Make a queue at once: what is wrong with it should be told before the crawl, not in its middle."""
    if len(queue):
        return  # they have been made
    if hasattr(queue, "pqfactory"):
        queue = queue.pqfactory("host")
        queue.qfactory(0).close()
        with suppress(OSError):
            Path(queue.key).rmdir()
    elif hasattr(queue, "qfactory"):
        queue.qfactory(0).close()
