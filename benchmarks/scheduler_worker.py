"""A scheduler at work without downloads: ``python -m benchmarks.scheduler_worker '{"settings": ...}'``.

The crawl is real: Scrapy opens the spider, its engine, its scheduler and all middlewares. Then the engine
is paused, and this stands in for it: requests are taken from the scheduler until there are as many in hand
as ``CONCURRENT_REQUESTS`` allows, and in every turn of the event loop a few of them end, with the links of
a page. What Scrapy would do with them in between is left out, so that what is left is the scheduler's.

scrapy-fleet has more to do than other schedulers: it sees in the engine which requests have ended, and is
told of the end of each download. Both are in all of its figures. Its middlewares around the spider and the
downloader are called as Scrapy calls them where it is said so: ``around``.

In the end Scrapy goes on, finds that nothing is left, and finishes: so nothing was lost on the way.
The last line is JSON: microseconds, and those of CPU time of all threads, a request.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count
from typing import Any

from scrapy import Request
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from benchmarks.worker import COMMON, FLEET_PARTS, LinksSpider, import_parts

AT_ONCE = int(COMMON["CONCURRENT_REQUESTS"])
A_TURN = 8
"""How many requests end in a turn of the event loop."""
LINKS = 20
"""Of a page; all but one are known."""
SITE = "http://www.example.com"
KEPT = 2 * AT_ONCE
"""So many stay waiting to the end of a measurement: a scheduler that runs out of requests waits for them."""

Links = Callable[[], list[Request]]
Taken = dict[str, float]
"""Microseconds a request: ``us``, and ``cpu_us`` of CPU time."""


class Nudge:
    """In the place of what wakes the engine."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def schedule(self, delay: float = 0) -> None:
        self._event.set()

    def cancel(self) -> None:
        pass

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()


class Stand:
    """What stands in for the engine, the downloader and the spider."""

    def __init__(self, spider: LinksSpider) -> None:
        engine: Any = spider.crawler.engine
        self.spider = spider
        self.engine = engine
        self.slot = engine._slot
        self.scheduler = self.slot.scheduler
        self.is_fleet = type(self.scheduler).__module__.startswith("scrapy_fleet.")
        self.flight: deque[tuple[Request, bool]] = deque()
        """Requests in hand, and whether the middlewares have seen them go out."""
        self.taken = 0
        self.ended = 0
        self.added = 0
        self.around = False
        self._numbers = count()
        self._response = Response(SITE)
        self._throttle = self._ours(engine.downloader.middleware, "process_response")
        self._between = self._ours(engine.scraper.spidermw, "process_spider_output")[::-1]
        if self.is_fleet:
            from scrapy_fleet.model import Sample

            self._sample = Sample
        engine.pause()
        self._nextcall, self.slot.nextcall = self.slot.nextcall, Nudge()
        # The downloader's slot of the site, which is there as soon as something was downloaded.
        engine.downloader._get_slot(Request(SITE))

    def _ours(self, manager: Any, method: str) -> list[Any]:
        """Our middlewares, the one next to the engine first."""
        return [
            each
            for each in manager.middlewares
            if type(each).__module__.startswith("scrapy_fleet.") and hasattr(each, method)
        ]

    def leave(self) -> None:
        """Let Scrapy go on."""
        self.slot.nextcall = self._nextcall
        self.engine.unpause()
        self.slot.nextcall.schedule()

    # Requests

    def request(self, number: int) -> Request:
        return Request(f"{SITE}/p/{number}", callback=self.spider.parse, meta={"depth": 3})

    def new(self, number: int) -> list[Request]:
        return [self.request(next(self._numbers)) for _ in range(number)]

    def known(self, number: int) -> list[Request]:
        """Of those that were given first; other objects, as on every page."""
        return [self.request(n % self.added) for n in range(number)]

    # Work

    def enqueue(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.scheduler.enqueue_request(request)

    def _take(self) -> None:
        while len(self.flight) < AT_ONCE and (request := self.scheduler.next_request()) is not None:
            self.slot.add_request(request)
            if self.around:
                for each in self._throttle:
                    each.process_request(request)
            self.flight.append((request, self.around))
            self.taken += 1

    def _end(self, links: list[Request]) -> None:
        request, around = self.flight.popleft()
        found: Iterable[Request] = links
        if around:
            for each in self._throttle:
                each.process_response(request, self._response)
            self._response.request = request
            for each in self._between:
                found = each.process_spider_output(self._response, found)
        elif self.is_fleet:
            token = self.scheduler.running.send(request)
            if token is not None:
                self.scheduler.frontier.sample(self._sample(token, 0.05, 200))
        self.enqueue(found)
        self.slot.remove_request(request)
        self.ended += 1

    async def flow(self, number: int, links: Links) -> None:
        """Have so many requests end, each with the links of a page."""
        until = self.ended + number
        while self.ended < until:
            self._take()
            if not self.flight:
                await self.slot.nextcall.wait()
                continue
            for _ in range(min(A_TURN, len(self.flight), until - self.ended)):
                self._end(links())
            await asyncio.sleep(0)

    async def measure(self, number: int, pages: list[list[Request]]) -> Taken:
        """What it takes to have so many requests end, each with the links of a page."""
        links = iter(pages)
        gc.collect()
        gc.freeze()  # what was made for the measurement is nobody's garbage
        wall, cpu = time.perf_counter(), time.process_time()
        await self.flow(number, lambda: next(links, []))
        return {
            "us": 1e6 * (time.perf_counter() - wall) / number,
            "cpu_us": 1e6 * (time.process_time() - cpu) / number,
        }

    # What is measured

    async def fill(self, number: int) -> None:
        self.enqueue(self.new(number))
        self.added += number
        stats = self.spider.crawler.stats
        assert stats is not None
        while self.is_fleet and stats.get_value("scheduler/enqueued", 0) < number:
            await asyncio.sleep(0.01)  # it is being committed

    async def run(self, fill: int, new: int, pages: int, repeats: int) -> dict[str, Any]:
        found: dict[str, Any] = {"new": [], "known": [], "next": []}
        await self.fill(fill)
        await self.measure_new(min(new, 4 * AT_ONCE))  # to warm up
        for _ in range(repeats):
            found["new"].append(await self.measure_new(new))
            _, known = await self.measure_known(pages)
            if self.is_fleet:
                # Most are recognised next to the spider; this is what those take that are not.
                found.setdefault("known_in_store", []).append(known)
                self.around = True
                around, known = await self.measure_known(pages)
                self.around = False
                found.setdefault("around", []).append(around)
            found["known"].append(known)
        for _ in range(repeats):
            found["next"].append(await self.measure((fill - KEPT) // repeats, []))
        await self.flow(self.added - self.ended, list)
        if self.taken != self.added:
            raise SystemExit(f"{self.added} requests were given, {self.taken} came back.")
        return found

    async def measure_new(self, number: int) -> Taken:
        """Every page has one new link."""
        pages = [[request] for request in self.new(number)]
        taken = await self.measure(number, pages)
        self.added += number
        return taken

    async def measure_known(self, number: int) -> tuple[Taken, Taken]:
        """First, every page has one new link, then others as well that are known; what a new one takes, and
        what one of these takes more."""
        few = LINKS - 1
        known = iter(self.known(number * few))
        alone = await self.measure_new(number)
        pages = [[request, *(next(known) for _ in range(few))] for request in self.new(number)]
        both = await self.measure(number, pages)
        self.added += number
        return alone, {name: (both[name] - alone[name]) / few for name in both}


class StandSpider(LinksSpider):
    """Does its work before it gives its first request; it gives none."""

    job: dict[str, Any]
    found: dict[str, Any]

    async def start(self) -> AsyncIterator[Any]:
        stand = Stand(self)
        try:
            self.found = await stand.run(**self.job)
        finally:
            stand.leave()
        no_requests: list[Request] = []
        for each in no_requests:
            yield each


def main() -> None:
    job = json.loads(sys.argv[1])
    StandSpider.job = {name: value for name, value in job.items() if name != "settings"}
    process = CrawlerProcess({**COMMON, **job["settings"]})
    crawler = process.create_crawler(StandSpider)
    import_parts(crawler.settings)
    if crawler.settings["ADDONS"]:
        import_parts(dict.fromkeys(FLEET_PARTS))
    process.crawl(crawler, url=SITE)
    process.start()
    assert crawler.stats is not None
    reason = crawler.stats.get_value("finish_reason")
    spider: Any = crawler.spider
    print(json.dumps({**getattr(spider, "found", {}), "reason": reason}))


if __name__ == "__main__":
    main()
