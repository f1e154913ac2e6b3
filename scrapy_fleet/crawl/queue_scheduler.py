"""Scrapy's way to schedule, over a queue class of the user's own.

The queue is asked from Scrapy's loop, and what is popped from it is gone: nothing here is leased. So most of
what the fleet promises does not hold; what does is in docs/queues.md.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.queue_index import QueueIndex
from scrapy_fleet.crawl.seam import EventLoop, Seam, stop_soon
from scrapy_fleet.errors import FleetError, SettingError, StoreError, TransientError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

ASK_AGAIN = 0.5
"""Seconds until a queue that has requests but gave none is asked again."""


class Checked:
    """Makes queues, and tells their own ValueErrors from those that mean "put it into memory"."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def from_crawler(self, crawler: Crawler, key: str) -> Any:
        try:
            return build_from_crawler(self.queue, crawler, key)
        except TransientError:
            raise
        except Exception as error:
            name = f"{self.queue.__module__}.{self.queue.__qualname__}"
            raise StoreError(
                f"The queue {name} cannot be made for {key!r}: {str(error) or repr(error)}"
            ) from error


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
            # Opening goes on, so that Scrapy closes in order; the engine stops as soon as it has started.
            self.crawler.signals.connect(self._stop, signals.engine_started)
            return None
        self._open = True
        opened: Deferred[None] | None = self.seen.open()
        return opened

    def _prepare(self) -> None:
        settings = self.crawler.settings
        if not settings.get("JOBDIR"):
            raise SettingError("A queue of your own needs JOBDIR, or the add-on, which chooses one.")
        folder = Path(settings["JOBDIR"], "requests.queue")
        folder.mkdir(parents=True, exist_ok=True)
        self._finished = folder / "finished"
        self._forget_finished()
        self.seen = build_from_crawler(load_object(settings["DUPEFILTER_CLASS"]), self.crawler)
        made_of = load_object(settings["SCHEDULER_DISK_QUEUE"])
        start = settings["SCHEDULER_START_DISK_QUEUE"]
        if start and not settings.getpriority("SCHEDULER_START_DISK_QUEUE"):
            start = made_of  # Scrapy's default would pickle start requests into files
        self.memory = self._priority_queue(
            "", settings["SCHEDULER_MEMORY_QUEUE"], "SCHEDULER_START_MEMORY_QUEUE"
        )
        kind = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
        self._index = QueueIndex(folder, kind, Seam(self.crawler))
        self.queue = build_from_crawler(
            kind,
            self.crawler,
            downstream_queue_cls=Checked(made_of),
            key=str(folder),
            startprios=self._index.read(),
            start_queue_cls=Checked(load_object(start)) if start else None,
        )
        _try_out(self.queue)
        logger.warning(
            "Requests are kept in %s, not in the fleet's store. Scrapy's rules hold: one process a crawl, "
            "delays of this process alone, and a crash loses what was being fetched or waited in memory.",
            f"{made_of.__module__}.{made_of.__qualname__}",
        )
        if len(self.queue):
            logger.info("Resuming crawl: %d requests waiting.", len(self.queue))

    def _priority_queue(self, key: str, queue: Any, start: str) -> Any:
        settings = self.crawler.settings
        return build_from_crawler(
            load_object(settings["SCHEDULER_PRIORITY_QUEUE"]),
            self.crawler,
            downstream_queue_cls=load_object(queue),
            key=key,
            start_queue_cls=load_object(settings[start]) if settings[start] else None,
        )

    def _forget_finished(self) -> None:
        """As everywhere in the fleet: a finished crawl that is started again begins anew."""
        if self._finished.exists():
            self._finished.unlink()
            if fleet_settings.get(self.crawler.settings, "FLEET_ON_FINISH") == "clear":
                self._finished.parent.with_name("requests.seen").unlink(missing_ok=True)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            logger.error(
                "The queue failed, so the crawl stops: %s", error, exc_info=not isinstance(error, FleetError)
            )
            self._stop()

    def _stop(self) -> None:
        stop_soon(self.crawler, "fleet_error")

    def close(self, reason: str) -> Deferred[None] | None:
        if not self._open:
            return None
        self._open = False
        self._move_out_of_memory()
        try:
            left = len(self.queue)
            self._index.write(self.queue.close())
            if reason == "finished" and not left:
                self._finished.touch()
        except Exception as error:
            logger.error("The queue could not be closed: %s", error, exc_info=True)
        closed: Deferred[None] | None = self.seen.close(reason)
        return closed

    def _move_out_of_memory(self) -> None:
        """What the queue could not take before, it may take now."""
        lost, is_away = 0, self.failure is not None
        while (request := self.memory.pop()) is not None:
            try:
                if is_away:
                    raise TransientError("It has failed before.")
                self._index.note(request)
                self.queue.push(request)
            except Exception as error:
                is_away = is_away or isinstance(error, TransientError) or not isinstance(error, ValueError)
                lost += 1
        if lost:
            logger.error(
                "%d requests were in memory and could not be put into the queue: they are lost.", lost
            )

    # The engine's side

    def has_pending_requests(self) -> bool:
        return self.failure is not None or len(self) > 0

    def __len__(self) -> int:
        if not self._open:
            return 0
        try:
            return len(self.memory) + len(self.queue)
        except Exception as error:
            self._fail(error)
            return 1

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
            self._fail(error)
            kept = "memory"
        if kept == "memory":
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
        if request is None:
            kept = "disk"
            try:
                request = self.queue.pop()
                if request is None and len(self.queue) > 0:
                    self._ask_again()
            except Exception as error:
                self._fail(error)
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
            Seam(self.crawler, check=False).nudge()


def _try_out(queue: Any) -> None:
    """Make a queue at once: what is wrong with it should be told before the crawl, not in its middle."""
    if len(queue):
        return  # they have been made
    if hasattr(queue, "pqfactory"):
        queue = queue.pqfactory("host")
    if hasattr(queue, "qfactory"):
        queue.qfactory(0).close()
