"""Next to the downloader: what downloads tell about their hosts, and what is not to be downloaded now.

Every download of a leased request ends with a sample for its slot; of others, refusals are told. Requests
that came too late, that the site refused because it is asked too often, or that were only to find out whether
it answers, go back to the store and wait there, uncounted: they are no retries. So do those that have no
retry left when the whole site falls silent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request, Spider, signals
from scrapy.http import Response
from scrapy.utils.misc import load_object

from scrapy_fleet.ahead import JUDGED_FROM, SOON
from scrapy_fleet.crawl.again import again, back
from scrapy_fleet.crawl.asides import SPOKEN_FOR, refusal
from scrapy_fleet.crawl.debug_lines import DebugLines
from scrapy_fleet.crawl.retry_after import retry_after
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.model import Lease, Sample
from scrapy_fleet.pacing import UNDER
from scrapy_fleet.politeness import leeway_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from twisted.internet.defer import Deferred

    from scrapy_fleet.crawl.scheduler import Scheduler

logger = logging.getLogger(__name__)

WRITTEN = 2
"""How often the loop comes round until a request that has its connection is written for sure: in its next
turn, and what is called later may still be called in this one."""
SLACK = 0.1
"""For how long a request may wait in the downloader, as a part of its slot's distance."""
MOST_LATE, MOST_REFUSED, MOST_SILENT = 5, 10, 3
REFUSED, SILENT = "_fleet_refused", "_fleet_silent"
"""How often a request went back, in its ``meta``."""
MOST_REMEMBERED = 10_000


class Download:
    """A leased request on its way."""

    __slots__ = ("__weakref__", "is_first", "lease", "over", "turns")

    def __init__(self, lease: Lease, *, is_first: bool) -> None:
        self.lease = lease
        self.is_first = is_first
        """Of its slot, at this worker: it has to connect, which may take long."""
        self.over = False
        self.turns = WRITTEN


class Retrying:
    """What people said about requests that fail."""

    def __init__(self, settings: BaseSettings) -> None:
        self._enabled = settings.getbool("RETRY_ENABLED")
        self._times = settings.getint("RETRY_TIMES")
        self._statuses = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._adjust = settings.getint("RETRY_PRIORITY_ADJUST")
        self._errors = tuple(load_object(each) for each in settings.getlist("RETRY_EXCEPTIONS"))
        self._shown = settings.getlist("HTTPERROR_ALLOWED_CODES")
        self._shows_all = settings.getbool("HTTPERROR_ALLOW_ALL")

    def is_silence(self, error: Exception) -> bool:
        """The site gave no answer, or broke off."""
        return isinstance(error, self._errors)

    def allowed(self, request: Request) -> bool:
        meta = request.meta
        times = meta.get("max_retry_times")
        return self._enabled and not meta.get("dont_retry") and (self._times if times is None else times) > 0

    def is_last(self, request: Request) -> bool:
        """Whether it is given up if it fails now."""
        times = request.meta.get("max_retry_times")
        return bool(request.meta.get("retry_times", 0) >= (self._times if times is None else times))

    def allowed_for(self, request: Request, status: int, spider: Spider | None) -> bool:
        return (
            status in self._statuses and self.allowed(request) and not self._is_shown(request, status, spider)
        )

    def _is_shown(self, request: Request, status: int, spider: Spider | None) -> bool:
        """The spider wants to see such responses; decided as Scrapy's HttpErrorMiddleware does."""
        meta = request.meta
        if meta.get("handle_httpstatus_all"):
            return True
        if "handle_httpstatus_list" in meta:
            return status in (meta["handle_httpstatus_list"] or ())
        return self._shows_all or status in getattr(spider, "handle_httpstatus_list", self._shown)

    def lower(self, request: Request) -> int:
        """The priority with which it is tried again."""
        return request.priority + int(request.meta.get("priority_adjust", self._adjust))


class ThrottleMiddleware:
    """Downloader middleware, next to the downloader."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self._retrying = Retrying(crawler.settings)
        self._downloads: WeakKeyDictionary[Request, Download] = WeakKeyDictionary()
        self._sent: list[Download] = []
        """Downloads that have begun, but may not be written yet."""
        self._asides: WeakSet[Request] = WeakSet()
        """Downloads without a lease."""
        self._late: dict[int, int] = {}
        """How often requests came too late, by the hash of what is stored of them."""
        self._silences: dict[str, int] = {}
        """How many downloads in a row have got no answer, by slot, as far as this worker knows."""
        self._debug: DebugLines | None = None
        self._watches = False
        if crawler.settings.getbool("AUTOTHROTTLE_DEBUG"):
            # The line tells how many are being downloaded with this one.
            crawler.signals.connect(self._response_downloaded, signals.response_downloaded)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ThrottleMiddleware:
        return cls(crawler)

    @property
    def _scheduler(self) -> Scheduler:
        scheduler = scheduler_of(self.crawler)
        assert scheduler is not None
        return scheduler

    # On the way out

    def process_request(self, request: Request, spider: Spider | None = None) -> Request | None:
        scheduler = scheduler_of(self.crawler)
        if scheduler is None or scheduler.frontier is None:
            return None
        token = scheduler.running.send(request)
        if token is None:
            self._asides.add(request)
            return None
        lease = scheduler.frontier.lease(token)
        if lease is None:
            # It has gone to another worker; this one drops it.
            return back(scheduler, request)
        if lease.pace >= JUDGED_FROM and self._is_late(scheduler, lease) and self._may_be_late(lease):
            self._count("fleet/late")
            return back(scheduler, request)
        is_first = scheduler.seam.delay_in_downloader(lease.slot) is None
        self._downloads[request] = Download(lease, is_first=is_first)
        if leeway_of(lease.pace) and not self._watches:
            self._watches = True
            scheduler.seam.tell_of_sending(self._hold, self._begin)
        self._keep_in_step(scheduler, lease)
        return None

    def _hold(self, request: Request) -> Deferred[None] | None:
        """It was handed out early, so that it is here in time; here it waits for it."""
        scheduler, download = self._scheduler, self._downloads.get(request)
        if download is None or scheduler.frontier is None:
            return None
        seconds = scheduler.frontier.ahead.let_go(download.lease.token)
        if seconds <= SOON:
            return None
        scheduler.seam.hold_in_downloader(download.lease.slot, seconds)
        return scheduler.loop.pause(seconds)

    def _begin(self, request: Request, connected: bool) -> None:
        download = self._downloads.get(request)
        if download is None or (download.is_first and not connected):
            return  # its answer will tell
        if not self._sent:
            self._scheduler.loop.later(0, self._come_round)
        self._sent.append(download)

    def _come_round(self) -> None:
        """A loop that has much to do takes its time to come round."""
        sent, self._sent = self._sent, []
        scheduler = scheduler_of(self.crawler)
        if scheduler is None or scheduler.frontier is None:
            return
        for download in sent:
            download.turns -= 1
            if download.turns:
                self._sent.append(download)
            else:
                scheduler.frontier.begin(download.lease.token)
        if self._sent:
            scheduler.loop.later(0, self._come_round)

    def _is_late(self, scheduler: Scheduler, lease: Lease) -> bool:
        """It has missed its time, or would while it waited behind what does not come from the store."""
        assert scheduler.frontier is not None
        if scheduler.frontier.is_late(lease.token):
            return True
        wait = scheduler.seam.wait_in_downloader(lease.slot)
        return wait > SLACK * lease.pace + scheduler.frontier.ahead.time_left(lease.token)

    def _may_be_late(self, lease: Lease) -> bool:
        """It can wait for another time: it has not done so often, as far as this worker knows."""
        key = hash((lease.slot, lease.payload))
        times = self._late.pop(key, 0)
        if times >= MOST_LATE:
            return False
        if len(self._late) >= MOST_REMEMBERED:
            self._late.clear()
        self._late[key] = times + 1
        return True

    def _keep_in_step(self, scheduler: Scheduler, lease: Lease) -> None:
        """The downloader's slot heeds what holds for the host now."""
        seam, slot, delay = scheduler.seam, lease.slot, UNDER * lease.pace
        assert scheduler.options is not None
        seam.make_room_in_downloader(slot, scheduler.options.plan.rule_of(slot).concurrency, self._downloads)
        now = seam.delay_in_downloader(slot)
        if now is not None and delay < now:
            seam.set_delay_in_downloader(slot, delay)
        elif now is None or delay > now:
            # This request keeps the distance that held when its time was chosen.
            scheduler.loop.later(0, lambda: seam.set_delay_in_downloader(slot, delay))

    # On the way back

    def process_response(
        self, request: Request, response: Response, spider: Spider | None = None
    ) -> Request | Response:
        download = self._downloads.pop(request, None)
        if download is None:
            self._tell_refusal(request, response)
            return response
        self._silences.pop(download.lease.slot, None)
        self._sample(download, request, response)
        refused = response.status == 429 or (response.status == 503 and retry_after(response) is not None)
        if (
            refused
            and request.meta.get(REFUSED, 0) < MOST_REFUSED
            and self._retrying.allowed_for(request, response.status, self.crawler.spider)
        ):
            self._count("fleet/refused")
            logger.debug("%s was refused (%d): it waits with its host.", request, response.status)
            return self._again(request, REFUSED)
        request.meta.pop(SILENT, None)
        if not refused:
            request.meta.pop(REFUSED, None)
        return response

    def process_exception(
        self, request: Request, exception: Exception, spider: Spider | None = None
    ) -> Request | None:
        download = self._downloads.pop(request, None)
        if download is None:
            return None
        silent = self._retrying.is_silence(exception)
        self._end(download, Sample(download.lease.token, failed=_shortly(exception) if silent else ""))
        if not silent:
            return None
        slot = download.lease.slot
        if len(self._silences) >= MOST_REMEMBERED:
            self._silences.clear()
        self._silences[slot] = self._silences.get(slot, 0) + 1
        if not self._retrying.allowed(request):
            return None
        if download.lease.probe:
            self._count("fleet/probes_failed")
            logger.debug("%s still gives no answer: %s", slot, exception)
            return self._again(request)
        waited = request.meta.get(SILENT, 0)
        if waited < MOST_SILENT and self._retrying.is_last(request) and self._falls_silent(slot):
            self._count("fleet/silent")
            logger.debug("%s gives no answer any more, %s waits with it.", slot, request)
            return self._again(request, SILENT)
        return None

    def _falls_silent(self, slot: str) -> bool:
        """Whether the breaker trips, as far as this worker can tell, or would if what is under way failed."""
        assert self._scheduler.options is not None
        enough = self._scheduler.options.plan.backoff.failures
        silences = self._silences[slot]
        under_way = sum(download.lease.slot == slot for download in self._downloads.values())
        # One may fail for reasons of its own.
        return 0 < enough <= silences + under_way and silences > 1

    def _again(self, request: Request, counter: str | None = None) -> Request:
        """It waits behind others."""
        copy = again(self._scheduler, request)
        if counter is not None:
            copy.meta[counter] = copy.meta.get(counter, 0) + 1
        copy.priority = self._retrying.lower(request)
        return copy

    def _tell_refusal(self, request: Request, response: Response) -> None:
        """Of a download without a lease, and not of an answer from a cache."""
        scheduler = scheduler_of(self.crawler)
        if request not in self._asides or request in SPOKEN_FOR or scheduler is None:
            return
        self._asides.discard(request)
        notice = refusal(scheduler.seam.slot_key(request), response)
        if notice is not None and scheduler.frontier is not None:
            scheduler.frontier.notice(notice)

    # Samples

    def _response_downloaded(self, response: Response, request: Request, spider: Spider) -> None:
        download = self._downloads.get(request)
        if download is None:
            return
        sample = self._sample(download, request, response)
        if self._debug is None:
            assert self._scheduler.options is not None
            self._debug = DebugLines(self.crawler.settings, self._scheduler.options.plan)
        if self._debug.wanted:
            slot = download.lease.slot
            self._debug.log(download.lease, sample, response, self._scheduler.seam.downloading(slot), spider)

    def _sample(self, download: Download, request: Request, response: Response) -> Sample:
        latency = request.meta.get("download_latency")
        if request.meta.get("autothrottle_dont_adjust_delay", False) is True:
            latency = None
        sample = Sample(download.lease.token, latency, response.status, retry_after(response))
        self._end(download, sample)
        return sample

    def _end(self, download: Download, sample: Sample) -> None:
        scheduler = scheduler_of(self.crawler)
        if not download.over and scheduler is not None and scheduler.frontier is not None:
            download.over = True
            scheduler.frontier.sample(sample)

    def _count(self, name: str) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value(name)


def _shortly(error: Any) -> str:
    """What went wrong, in one line that people can read."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:120] if text else type(error).__name__
