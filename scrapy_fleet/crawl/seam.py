"""With ``seam_late`` and ``seam_sending``, all that touches Scrapy's private names.

Scrapy tells nobody when it has let go of a request, nor can it be woken from outside by public
means. What is used for that is checked when the spider opens, so that a Scrapy that changed inside
gives a clear message instead of a crawl that loses pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Container
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import Request
from scrapy.core.downloader import Downloader
from scrapy.core.downloader import Slot as DownloaderSlot
from scrapy.core.scraper import Slot as ScraperSlot
from scrapy.http import Headers, Response
from scrapy.http.request import NO_CALLBACK
from twisted.internet.defer import Deferred

from scrapy_fleet.crawl.seam_sending import SENDING, Hold, Tell, tell_of_sending
from scrapy_fleet.errors import IncompatibleScrapy

if TYPE_CHECKING:
    from scrapy.core.engine import ExecutionEngine
    from scrapy.crawler import Crawler
    from scrapy.http.request import CallbackT, CookiesT
    from twisted.python.failure import Failure

    from scrapy_fleet.crawl.scheduler import Scheduler


LANE = ("active", "concurrency", "delay", "lastseen", "queue", "transferring")
"""What is used of a downloader's slot."""
MOST_HOSTS = 100_000
"""How many hosts are remembered at a time."""


class EventLoop:
    """The loop the crawl runs on: Twisted's reactor, or asyncio's loop where there is no reactor."""

    def __init__(self) -> None:
        reactor: Any = sys.modules.get("twisted.internet.reactor")
        # Scrapy's usual reactor runs on asyncio, whose own timers take a fraction of the time.
        loop = asyncio.get_running_loop() if reactor is None else getattr(reactor, "_asyncioEventloop", None)
        if loop is None:
            self._post, self._later = reactor.callFromThread, reactor.callLater
        else:
            self._post, self._later = loop.call_soon_threadsafe, loop.call_later

    def post(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._post(call)

    def later(self, delay: float, call: Callable[[], None]) -> None:
        self._later(delay, call)

    def pause(self, seconds: float) -> Deferred[None]:
        over: Deferred[None] = Deferred()
        self.later(seconds, lambda: over.callback(None))
        return over


class Seam:
    """What the scheduler needs to know of the engine."""

    def __init__(self, crawler: Crawler, *, check: bool = True) -> None:
        assert crawler.engine is not None
        self._engine: ExecutionEngine = crawler.engine
        self._most_items: int | None = None
        downloader: Any = crawler.engine.downloader
        self._slots_are_hosts = getattr(
            type(downloader), "get_slot_key", None
        ) is Downloader.get_slot_key and not getattr(downloader, "ip_concurrency", True)
        self._hosts: set[str] = set()
        """Some that are their own slots."""
        if check:
            self._check()

    def _check(self) -> None:
        engine, downloader, scraper = self._engine, self._engine.downloader, ScraperSlot()
        found = {
            "engine._slot.inprogress": isinstance(getattr(_slot(engine), "inprogress", None), set),
            "engine._slot.closing": hasattr(_slot(engine), "closing"),
            "engine._slot.nextcall.schedule": callable(
                getattr(getattr(_slot(engine), "nextcall", None), "schedule", None)
            ),
            "engine.downloader.active": isinstance(getattr(downloader, "active", None), set),
            "engine.downloader.handlers.download_request": any(
                hasattr(getattr(downloader, "handlers", None), name) for name in SENDING
            ),
            "engine.downloader.get_slot_key": callable(getattr(downloader, "get_slot_key", None)),
            "engine.downloader.slots[...]": all(hasattr(DownloaderSlot(1, 0.0, 0.0), name) for name in LANE),
            "engine.scraper.slot": hasattr(engine.scraper, "slot"),
            "engine.scraper.slot.active": isinstance(getattr(scraper, "active", None), set),
            "engine.scraper.slot.queue": hasattr(getattr(scraper, "queue", None), "popleft"),
        }
        missing = [name for name, there in found.items() if not there]
        if missing:
            raise IncompatibleScrapy(
                f"Scrapy {scrapy.__version__} has no {', '.join(missing)} as scrapy-fleet knows it, so it "
                "cannot tell when a request is finished, nor keep its pace. Upgrade scrapy-fleet, or use an "
                "older Scrapy (2.13 to 2.19 are known)."
            )

    def active(self) -> set[Request]:
        """Every request that the engine, the downloader or the scraper still has in hand."""
        slot, scraper = _slot(self._engine), self._engine.scraper.slot
        active: set[Request] = self._engine.downloader.active | (
            slot.inprogress if slot is not None else set()
        )
        if scraper is not None:
            active |= scraper.active
            active.update(request for _, request, _ in scraper.queue)
        return active

    def leaving(self, requests: list[Request]) -> list[Request]:
        """Those of ``requests`` that the downloader has let go of and the scraper has not got: while a
        redirect or a retry is handed to the scheduler, the request it comes from."""
        slot, scraper = _slot(self._engine), self._engine.scraper.slot
        if slot is None:
            return []
        busy = set(self._engine.downloader.active)
        if scraper is not None:
            busy |= scraper.active
            busy.update(request for _, request, _ in scraper.queue)
        return [request for request in requests if request in slot.inprogress and request not in busy]

    def abandon(self, request: Request) -> None:
        """Do not wait for a request any more: its callback does not end."""
        slot, scraper = _slot(self._engine), self._engine.scraper.slot
        if scraper is not None:
            scraper.active.discard(request)
        if slot is not None and request in slot.inprogress:
            slot.remove_request(request)

    def nudge(self) -> None:
        """Make the engine look for requests now instead of at its next heartbeat."""
        slot = _slot(self._engine)
        if slot is not None:
            slot.nextcall.schedule()

    def expect_items(self, per_response: int) -> None:
        """Scrapy starts CONCURRENT_ITEMS tasks for each response, though most have few items:
        with the default of 100, a fifth of a page's time. Start as many as responses have needed."""
        scraper = self._engine.scraper
        if self._most_items is None:
            self._most_items = scraper.concurrent_items
        scraper.concurrent_items = min(self._most_items, max(2, 2 * per_response))

    @property
    def running(self) -> bool:
        """The spider is open and the engine has started."""
        return bool(self._engine.running)

    @property
    def closing(self) -> bool:
        slot = _slot(self._engine)
        return slot is None or slot.closing is not None

    def slot_key(self, request: Request) -> str:
        """What the request is throttled with: its host, or its ``download_slot``."""
        # Scrapy takes the URL apart: a fifth of what it costs to queue a request.
        parts = request.url.split("/", 3) if "download_slot" not in request.meta else ()
        if len(parts) != 4 or parts[0] not in ("http:", "https:") or parts[1]:
            return self._scrapys_slot_key(request)
        return parts[2] if parts[2] in self._hosts else self._learn_host(request, parts[2])

    def _scrapys_slot_key(self, request: Request) -> str:
        return str(self._engine.downloader.get_slot_key(request))

    def _learn_host(self, request: Request, host: str) -> str:
        slot = self._scrapys_slot_key(request)
        if slot == host and self._slots_are_hosts:
            if len(self._hosts) >= MOST_HOSTS:
                self._hosts.clear()
            self._hosts.add(host)
        return slot

    # The downloader's slots. They pace what does not come from the scheduler.

    def _lane(self, slot: str) -> Any:
        return getattr(self._engine.downloader, "slots", {}).get(slot)

    def delay_in_downloader(self, slot: str) -> float | None:
        """None as long as the downloader does not know the slot."""
        lane = self._lane(slot)
        return float(lane.delay) if lane is not None else None

    def set_delay_in_downloader(self, slot: str, delay: float) -> None:
        lane = self._lane(slot)
        if lane is not None:
            lane.delay = delay

    def wait_in_downloader(self, slot: str) -> float:
        """For how many seconds a request that came now would have to wait there for its slot's delay."""
        lane = self._lane(slot)
        if lane is None or not lane.delay:
            return 0.0
        return float(max(0.0, lane.lastseen + lane.delay - _now(lane)) + lane.delay * len(lane.queue))

    def hold_in_downloader(self, slot: str, seconds: float) -> None:
        """What was sent there last is sent so much later: what follows keeps its distance from then."""
        lane = self._lane(slot)
        if lane is not None:
            lane.lastseen = _now(lane) + seconds

    def make_room_in_downloader(self, slot: str, usual: int, leased: Container[Request]) -> None:
        """Another leased request is about to come: it must not wait there for others that are leased."""
        lane = self._lane(slot)
        if lane is not None and (lane.concurrency > usual or len(lane.active) >= lane.concurrency):
            lane.concurrency = max(usual, 1 + sum(request in leased for request in lane.active))

    def tell_of_sending(self, hold: Hold, tell: Tell) -> None:
        tell_of_sending(self._engine.downloader.handlers, hold, tell)

    def downloading(self, slot: str) -> int:
        lane = self._lane(slot)
        return len(lane.transferring) if lane is not None else 0

    def stop(self, reason: str) -> None:
        """Close the spider, whatever it is doing."""
        engine = self._engine
        # Also with a Scrapy that has no such slot: it must not end as "finished".
        if engine.spider is None or getattr(_slot(engine), "closing", None) is not None:
            return
        if hasattr(engine, "close_spider_async"):
            from scrapy.utils.defer import deferred_from_coro

            deferred_from_coro(engine.close_spider_async(reason=reason))
        else:
            engine.close_spider(engine.spider, reason)


def _now(lane: Any) -> float:
    """Up to 2.13 it looks at the wall clock, whose seconds are many more than those of the other."""
    return time.time() if lane.lastseen > 1e9 else time.monotonic()


def stop_soon(crawler: Crawler, reason: str) -> None:
    """Close the spider when what runs now has returned; if it has been opened at all."""
    try:
        engine = crawler.engine
    except RuntimeError:  # what Scrapy says as long as there is none
        engine = None
    if engine is not None:
        EventLoop().later(0, lambda: Seam(crawler, check=False).stop(reason))


def _slot(engine: ExecutionEngine) -> Any:
    return getattr(engine, "_slot", None)


def scheduler_of(crawler: Crawler) -> Scheduler | None:
    """The crawler's scheduler, if it is ours and the spider is open."""
    scheduler = getattr(_slot(crawler.engine), "scheduler", None)
    # Told by what it has: its module imports this one.
    return scheduler if hasattr(scheduler, "known_urls") else None


def let_go_of_page(response: Response) -> None:
    """Its callback has ended. A response and its selector hold each other, so that every parsed page would
    stay in memory until the garbage collector comes by: hundreds of megabytes where pages are large."""
    if getattr(response, "_cached_selector", None) is not None:
        response._cached_selector = None  # type: ignore[attr-defined]


def plain_request(
    url: str,
    callback: CallbackT | None = None,
    *,
    meta: dict[str, Any] | None = None,
    method: str = "GET",
    headers: dict[bytes, list[bytes]] | None = None,
    body: bytes = b"",
    cookies: CookiesT | None = None,
    encoding: str = "utf-8",
    priority: int = 0,
    dont_filter: bool = False,
    errback: Callable[[Failure], Any] | None = None,
    flags: list[str] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
) -> Request:
    """A Request of values that come from a Request: nothing is quoted, checked or copied again.

    A third of the constructor's cost, and the URL stays as it was to the byte.
    """
    if not _REQUEST_IS_KNOWN:
        request = Request(
            url,
            callback=callback,
            method=method,
            body=body,
            cookies=cookies,
            meta=meta,
            encoding=encoding,
            priority=priority,
            dont_filter=dont_filter,
            errback=errback,
            flags=flags,
            cb_kwargs=cb_kwargs,
        )
        if headers:
            dict.update(request.headers, headers)
        restore_url_and_body(request, url, body)
        return request
    request = Request.__new__(Request)
    request._encoding = encoding
    request.method = method
    request._meta = meta or None
    request._url = url
    request._body = body
    request.priority = priority
    request.callback = callback
    request.errback = errback
    request._cookies = cookies or None
    if headers:
        request._headers = Headers(encoding=encoding)
        dict.update(request._headers, headers)
    else:
        request._headers = None
    request.dont_filter = dont_filter
    request._cb_kwargs = cb_kwargs or None
    request._flags = flags or None
    return request


def restore_url_and_body(request: Request, url: str, body: bytes) -> None:
    """Undo what a constructor did to a URL and a body that had been through it before."""
    if request.url != url:
        request._url = url
    if request.body != body:
        request._body = body


def _request_is_known() -> bool:
    """Whether ``plain_request`` fills the inside of this Scrapy's requests as the constructor does."""
    global _REQUEST_IS_KNOWN
    some: dict[str, Any] = {
        "callback": NO_CALLBACK,
        "meta": {"a": 1},
        "method": "POST",
        "headers": {b"A": [b"1", b"2"]},
        "body": b"b",
        "cookies": {"c": "d"},
        "encoding": "latin-1",
        "priority": 1,
        "dont_filter": True,
        "errback": NO_CALLBACK,
        "flags": ["e"],
        "cb_kwargs": {"f": 2},
    }
    slots = {name for cls in Request.__mro__ for name in vars(cls).get("__slots__", ())} - {"__weakref__"}
    if Request.__dictoffset__ or not slots:
        return False
    _REQUEST_IS_KNOWN = True
    try:
        for values in ({}, some):
            ours, theirs = plain_request("http://a/b", **values), Request("http://a/b", **values)
            for name in slots:
                one, other = getattr(ours, name), getattr(theirs, name)
                if type(one) is not type(other) or one != other:
                    return False
    except (AttributeError, TypeError):
        return False
    return True


_REQUEST_IS_KNOWN = False
_REQUEST_IS_KNOWN = _request_is_known()

_public_values = attrgetter(
    "url", "callback", "meta", "priority", "dont_filter", "headers", "cb_kwargs",
    "errback", "method", "body", "cookies", "flags", "encoding",
)  # fmt: skip
_private_values = attrgetter(
    "_url", "callback", "_meta", "priority", "dont_filter", "_headers", "_cb_kwargs",
    "errback", "method", "_body", "_cookies", "_flags", "_encoding",
)  # fmt: skip


def request_values(request: Request) -> tuple[Any, ...]:
    """Url, callback, meta, priority, dont_filter, headers, cb_kwargs, errback, method, body, cookies,
    flags and encoding; what is empty may be None.

    Half the cost of asking for each: Scrapy makes empty containers when they are asked for.
    """
    if _REQUEST_IS_KNOWN and type(request) is Request:
        return _private_values(request)
    return _public_values(request)
