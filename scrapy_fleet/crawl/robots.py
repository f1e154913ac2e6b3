"""robots.txt, once per fleet: one worker asks a site for it, all heed it.

This takes the place of Scrapy's own middleware, with its settings, stats, signal and messages. What is new:

- The answer is a paper in the store (:mod:`scrapy_fleet.crawl.robots_paper`), for all workers.
- As RFC 9309 wants it, a site that cannot be asked (5xx, 429, no answer) is left alone, and not crawled
  without rules. Its requests wait in the store until it can be.
- ``Crawl-delay`` and ``Request-rate`` are told to the store, which paces.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy import Request, Spider, signals
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, NotSupported
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.python import to_unicode
from twisted.internet.defer import Deferred

from scrapy_fleet.crawl.again import back
from scrapy_fleet.crawl.asides import SPOKEN_FOR, refusal
from scrapy_fleet.crawl.retry_after import retry_after
from scrapy_fleet.crawl.robots_memory import Memory, Robots, distance_of
from scrapy_fleet.crawl.robots_paper import Ages, Fetched, Look, cut, look, pack
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.model import Lease, Notice
from scrapy_fleet.store.base import Store

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.robotstxt import RobotParser

    from scrapy_fleet.crawl.scheduler import Scheduler

# Under the name of Scrapy's middleware: people have told their logging what to do with it.
logger = logging.getLogger(RobotsTxtMiddleware.__module__)

PAUSES = 0.02, 0.5
"""How soon a worker looks again whether another one has fetched a robots.txt, at first and at last."""
FAILED_AGE = 60.0
"""For how many seconds, at most, a site that could not be asked is not asked again."""

T = TypeVar("T")


class FleetRobotsTxtMiddleware(RobotsTxtMiddleware):
    """Downloader middleware, where Scrapy's own would be."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self._agent = settings.get("ROBOTSTXT_USER_AGENT")
        self._usual_agent = settings.get("USER_AGENT", "Scrapy")
        self._parser_class = load_object(settings["ROBOTSTXT_PARSER"])
        self._memory = Memory()
        self._loading: dict[str, list[Deferred[Robots | None]]] = {}
        self._worker: object = None

    def process_request(  # type: ignore[override]
        self, request: Request, spider: Spider | None = None
    ) -> Request | Awaitable[Request | None] | None:
        if request.meta.get("dont_obey_robotstxt") or request.url.startswith(("data:", "file:")):
            return None
        site = urlparse_cached(request).netloc
        robots = self._known(site)
        # Nearly always it is known: then there is no need for a coroutine.
        return self._decide(request, robots) if robots is not None else self._find_and_decide(request, site)

    async def robot_parser(self, request: Request, spider: Spider | None = None) -> RobotParser | None:
        """The rules for a request; None if they cannot be had now."""
        site = urlparse_cached(request).netloc
        robots = self._known(site) or await self._find(request, site)
        return robots.parser if robots is not None else None

    @property
    def _scheduler(self) -> Scheduler:
        scheduler = scheduler_of(self.crawler)
        if scheduler is None or scheduler.frontier is None:
            raise IgnoreRequest("The crawl is not open")
        return scheduler

    def _known(self, site: str) -> Robots | None:
        frontier = self._scheduler.frontier
        assert frontier is not None
        if frontier.worker is not self._worker:
            # It has lost touch with the store, which may have forgotten what it was told.
            self._worker = frontier.worker
            self._memory.clear()
        return self._memory.get(site)

    # What becomes of a request

    async def _find_and_decide(self, request: Request, site: str) -> Request | None:
        robots = await self._find(request, site)
        # Without an answer the worker is about to close.
        return self._decide(request, robots) if robots is not None else self._back(request)

    def _decide(self, request: Request, robots: Robots) -> Request | None:
        scheduler, lease = self._scheduler, self._lease(request)
        assert scheduler.options is not None
        assert scheduler.frontier is not None
        if robots.parser is None:
            if lease is None or not scheduler.options.plan.backoff.failures:
                self._count("robotstxt/unreachable")
                raise IgnoreRequest("robots.txt unreachable")
            if lease.slot not in robots.told:
                scheduler.frontier.notice(Notice(lease.slot, failed=robots.failed))
                robots.told[lease.slot] = scheduler.frontier.commits
            return self._back(request)
        if not robots.parser.allowed(request.url, self._agent_of(request)):
            logger.debug(
                "Forbidden by robots.txt: %(request)s",
                {"request": request},
                extra={"spider": self.crawler.spider},
            )
            self._count("robotstxt/forbidden")
            raise IgnoreRequest("Forbidden by robots.txt")
        if robots.distance and lease is not None:
            if lease.slot not in robots.told:
                self._tell_distance(robots, lease.slot)
            # Those that were handed out before the store knew would come all at once.
            unheard = scheduler.frontier.commits <= robots.told[lease.slot] + 1
            if unheard and lease.pace < 0.99 * robots.distance:
                return self._back(request)
        return None

    def _lease(self, request: Request) -> Lease | None:
        """None: it does not come from the store."""
        return self._scheduler.lease_of(request)

    def _back(self, request: Request) -> Request:
        if self._lease(request) is None:
            raise IgnoreRequest("The crawl is closing, robots.txt is not known")
        return back(self._scheduler, request)

    def _agent_of(self, request: Request) -> str | bytes:
        return self._agent or request.headers.get(b"User-Agent") or self._usual_agent

    def _tell_distance(self, robots: Robots, slot: str) -> None:
        frontier = self._scheduler.frontier
        assert frontier is not None
        # Several sites may share a slot: the longest wish counts.
        longest = max([robots.distance, *(other.distance for other in self._memory if slot in other.told)])
        frontier.notice(Notice(slot, distance=longest))
        robots.told[slot] = frontier.commits

    # How the rules of a site are found

    async def _find(self, request: Request, site: str) -> Robots | None:
        """The rules of a site; those who ask at the same time wait for the first. None: the worker closes."""
        if site in self._loading:
            found: Deferred[Robots | None] = Deferred()
            self._loading[site].append(found)
            return await maybe_deferred_to_future(found)
        self._loading[site] = []
        robots = None
        try:
            robots = await self._load(request, site)
        finally:
            for waiting in self._loading.pop(site):
                waiting.callback(robots)
        return robots

    async def _load(self, request: Request, site: str) -> Robots | None:
        shared = await self._share(request, site)
        if shared.fetched is None:
            return None
        robots = Robots(self._parse(request, shared.fetched.body), shared.fetched, shared.good_for)
        if robots.parser is not None:
            robots.distance = distance_of(robots.parser, to_unicode(self._agent_of(request)))
            if hasattr(signals, "robots_parsed"):  # older Scrapys do not have it
                await self.crawler.signals.send_catch_log_async(
                    signal=signals.robots_parsed, robotparser=robots.parser, request=request
                )
        before = self._memory.put(site, robots)
        if before is not None and before.parser is not None and robots.parser is not None:
            if before.distance == robots.distance:
                robots.told = before.told
            else:
                for slot in before.told:
                    self._tell_distance(robots, slot)
        return robots

    async def _share(self, request: Request, site: str) -> Look:
        """What the site said, to this worker or to another; nothing if the worker is about to close."""
        scheduler = self._scheduler
        frontier, options, name = scheduler.frontier, scheduler.options, f"robots.txt {site}"
        assert frontier is not None
        assert options is not None
        backoff = options.plan.backoff
        # A site that could not be asked is asked again when it is probed, and not later.
        probed_after = 0.9 * min(backoff.first, backoff.most) if backoff.failures else FAILED_AGE
        ages = Ages(options.robots_max_age, min(FAILED_AGE, probed_after))
        pause, last = PAUSES

        def find(store: Store) -> Look:
            return look(store, name, frontier.worker.id, ages, options.worker_timeout)

        while True:
            found = await self._ask(find) or Look()
            if found.fetched is not None:
                return found
            if found.mine:
                break
            if scheduler.failure is not None or scheduler.seam.closing:
                return Look()
            await maybe_deferred_to_future(scheduler.loop.pause(pause))
            pause = min(2 * pause, last)
        fetched = await self._fetch(request, rules_known=found.old is not None and found.old.body is not None)
        if fetched.failed and found.old is not None:
            fetched = Fetched(found.old.body, fetched.failed, fetched.retry_after)
        frontier.ask(lambda store: store.write_paper(name, pack(fetched)), lambda _: None)
        return Look(fetched, ages.of(fetched))

    async def _ask(self, call: Callable[[Store], T]) -> T | None:
        """What the store answers; None if it cannot be asked."""
        scheduler, answer = self._scheduler, Deferred[T | None]()
        assert scheduler.frontier is not None

        def answered(result: T | None) -> None:
            if not answer.called:
                answer.callback(result)

        def watch() -> None:
            if scheduler.failure is not None:  # then there is nobody left to answer
                answered(None)
            elif not answer.called:
                scheduler.loop.later(1.0, watch)

        scheduler.frontier.ask(call, answered)
        watch()
        return await maybe_deferred_to_future(answer)

    async def _fetch(self, request: Request, *, rules_known: bool) -> Fetched:
        """Ask the site, past the scheduler as Scrapy does it."""
        url = urlparse_cached(request)
        asking = Request(
            f"{url.scheme}://{url.netloc}/robots.txt",
            priority=self.DOWNLOAD_PRIORITY,
            meta={"dont_obey_robotstxt": True},
            callback=NO_CALLBACK,
        )
        SPOKEN_FOR.add(asking)
        assert self._scheduler.options is not None
        if self._scheduler.options.plan.backoff.failures:
            asking.meta["dont_retry"] = True  # it is asked again, but not at once
        self._count("robotstxt/request_count")
        try:
            response = await self._download(asking)
        except (IgnoreRequest, NotSupported) as error:
            # Somebody does not want it to be fetched: no rules, as with Scrapy's own middleware.
            if not isinstance(error, IgnoreRequest):
                self._log_error(request, error)
            return Fetched()
        except Exception as error:
            self._log_error(request, error)
            return Fetched(None, f"robots.txt could not be fetched ({type(error).__name__})")
        self._count("robotstxt/response_count")
        self._count(f"robotstxt/response_status_count/{response.status}")
        if response.status == 429 or response.status >= 500:
            failed = f"robots.txt answered {response.status}"
            self._tell_refusal(request, asking, response, "" if rules_known else failed)
            return Fetched(None, failed, retry_after(response) or 0.0)
        return Fetched(cut(response.body) if 200 <= response.status < 300 else b"")

    def _tell_refusal(self, request: Request, asking: Request, response: Response, failed: str) -> None:
        """It is also an answer of the host, which is left alone as if it had refused a page."""
        scheduler, lease = self._scheduler, self._lease(request)
        assert scheduler.frontier is not None
        slot = scheduler.seam.slot_key(asking) if lease is None else lease.slot
        if (notice := refusal(slot, response, failed)) is not None:
            scheduler.frontier.notice(notice)

    async def _download(self, request: Request) -> Response:
        engine: Any = self.crawler.engine
        if hasattr(engine, "download_async"):
            response: Response = await engine.download_async(request)
        else:  # before Scrapy 2.14
            response = await maybe_deferred_to_future(engine.download(request))
        return response

    def _parse(self, request: Request, body: bytes | None) -> RobotParser | None:
        if body is None:
            return None
        try:
            return self._new_parser(body)
        except Exception as error:  # as with Scrapy's own middleware, there are no rules then
            self._log_error(request, error)
            return self._new_parser(b"")

    def _new_parser(self, body: bytes) -> RobotParser:
        parser: RobotParser = build_from_crawler(self._parser_class, self.crawler, body)
        return parser

    def _log_error(self, request: Request, error: Exception) -> None:
        logger.error(
            "Error downloading %(request)s: %(f_exception)s",
            {"request": request, "f_exception": error},
            exc_info=error,
            extra={"spider": self.crawler.spider},
        )
        self._count(f"robotstxt/exception_count/{type(error)}")

    def _count(self, name: str) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value(name)
