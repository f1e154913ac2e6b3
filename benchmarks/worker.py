"""One crawl in a process of its own: ``python -m benchmarks.worker '{"url": ..., "settings": {...}}'``.

Its last line is JSON: seconds, CPU seconds, memory, and how the crawl ended. Imports are not measured.
With ``"together": 2``, it waits until there are so many in its folder, so that they begin together;
``"spider"`` names another spider than :class:`LinksSpider`. With ``"sampled": true``, it also says where its
CPU time went (see ``benchmarks.sampler``).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.misc import load_object

from benchmarks.measure import peak_memory
from benchmarks.sampler import Sampler

COMMON: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "LOG_LEVEL": "WARNING",
    "TELNETCONSOLE_ENABLED": False,
}
"""The best settings for every side."""

PATIENCE = 120.0
"""Seconds that a worker waits for those it is to begin together with."""

FLEET_PARTS = (
    "scrapy_fleet.crawl.scheduler.Scheduler",
    "scrapy_fleet.store.sqlite.SqliteStore",
    "scrapy_fleet.store.memory.MemoryStore",
)
"""What the add-on wires when the crawl starts."""


class LinksSpider(scrapy.Spider):
    """What most spiders do: an item from the page, and all its links followed."""

    name = "links"

    def __init__(self, url: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [url]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("title::text").get()}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, callback=self.parse)


class DropKnown:
    """Drops links that were given before, next to the spider: all that any scheduler can gain from that."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any], spider: Any = None
    ) -> AsyncIterator[Any]:
        async for each in result:
            if isinstance(each, scrapy.Request):
                if each.url in self._given:
                    continue
                self._given.add(each.url)
            yield each


def import_parts(value: Any) -> None:
    """Import all that the settings name, which Scrapy would do within the measured time."""
    if isinstance(value, Mapping):
        for key in value:
            import_parts(key)
            import_parts(value[key])
    elif isinstance(value, str) and value.startswith(("scrapy.", "scrapy_fleet.", "scrapy_redis.")):
        with contextlib.suppress(ImportError, NameError, NotConfigured):
            load_object(value)


def wait_for_others(number: int) -> None:
    Path(f"worker-{os.getpid()}").touch()
    deadline = time.monotonic() + PATIENCE
    while len(list(Path().glob("worker-*"))) < number:
        if time.monotonic() > deadline:
            raise SystemExit(f"There are no {number} workers after {PATIENCE:g} s.")
        time.sleep(0.002)


def crawl(job: dict[str, Any]) -> dict[str, Any]:
    process = CrawlerProcess({**COMMON, **job["settings"]})
    crawler: Crawler = process.create_crawler(load_object(job.get("spider", LinksSpider)))
    import_parts(crawler.settings)
    if crawler.settings["ADDONS"]:
        import_parts(dict.fromkeys(FLEET_PARTS))
        if crawler.settings.get("FLEET_URL", "").startswith("redis"):
            import_parts("scrapy_fleet.store.redis.RedisStore")
    wait_for_others(job.get("together", 1))
    starting = time.monotonic()
    began, cpu, main = time.perf_counter(), time.process_time(), time.thread_time()
    sampler = Sampler(crawler.spidercls.parse.__code__) if job.get("sampled") else None
    with sampler or contextlib.nullcontext():
        process.crawl(crawler, url=job["url"])
        process.start()
    seconds, cpu, main = time.perf_counter() - began, time.process_time() - cpu, time.thread_time() - main
    assert crawler.stats is not None
    stats = crawler.stats.get_stats()
    return {
        "began": starting,
        "seconds": seconds,
        "cpu": cpu,
        "cpu_other_threads": cpu - main,
        "cpu_by_group": dict(sampler.seconds) if sampler else None,
        "memory": peak_memory(),
        "reason": stats.get("finish_reason"),
        "responses": int(stats.get("response_received_count", 0)),
        "items": int(stats.get("item_scraped_count", 0)),
        "commits": stats.get("fleet/commits"),
    }


if __name__ == "__main__":
    print(json.dumps(crawl(json.loads(sys.argv[1]))))
