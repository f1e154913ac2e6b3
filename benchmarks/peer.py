"""scrapy-redis, to be measured beside us: in an environment of its own (see ``benchmarks.environments``).

``python -m benchmarks.peer PORT NUMBER`` (with that environment's Python) fills a server with requests by
way of scrapy-redis and prints what each kind of record takes of the server's memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider

from benchmarks.environments import SCRAPY_REDIS, NoPeer, python_of, version_of
from benchmarks.measure import ROOT
from benchmarks.worker import LinksSpider

__all__ = ["NoPeer", "memory", "peer_version", "python"]

BATCH = 1000

SETTINGS: dict[str, Any] = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
}
SHARED_STATS = {"STATS_CLASS": "scrapy_redis.stats.RedisStatsCollector"}


def python() -> str:
    """The Python that has scrapy-redis and the Scrapy that we have."""
    return python_of(SCRAPY_REDIS)


def peer_version(interpreter: str) -> str:
    return version_of(SCRAPY_REDIS)


def look(results: dict[str, Any], *, wanted: bool = True) -> str | None:
    """The Python that has scrapy-redis, or None. The results tell its version, or why there is none."""
    results |= {"peer": None, "no_peer": "it was left out"}
    if not wanted:
        return None
    try:
        found = python()
        results["peer"] = peer_version(found)
    except NoPeer as error:
        results["no_peer"] = f"it cannot be installed: {error}"
        return None
    return found


def memory(interpreter: str, port: int, number: int) -> dict[str, float]:
    """Bytes on the server for a waiting request and for a seen URL."""
    command = [interpreter, "-m", "benchmarks.peer", str(port), str(number)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def fewer(number: int) -> int:
    """Of a second kind of request it takes fewer to see what each takes."""
    return max(1, number // 5)


def requests(spider: Spider, number: int, referer: bool = False) -> Iterator[Request]:
    """What is filled in, on every side."""
    for n in range(number):
        category = f"https://www.example.com/catalogue/category-{n % 97}"
        headers = {"Referer": f"{category}/index.html"} if referer else None
        url = f"{category}/product-{n}.html"
        yield Request(url, callback=spider.parse, headers=headers, meta={"depth": 3})


def main() -> None:
    # Only in the environment made for it.
    import redis
    from scrapy.crawler import Crawler
    from scrapy_redis.dupefilter import RFPDupeFilter  # type: ignore[import-not-found]
    from scrapy_redis.queue import PriorityQueue  # type: ignore[import-not-found]

    port, most = map(int, sys.argv[1:])
    server = redis.Redis(port=port)
    # It does not notice that its commands are gathered, which only makes filling faster.
    pipeline = server.pipeline(transaction=False)
    spider = LinksSpider.from_crawler(Crawler(LinksSpider), url="https://www.example.com/")
    queue = PriorityQueue(pipeline, spider, "links:requests")
    seen = RFPDupeFilter(pipeline, "links:dupefilter")
    found = {}
    for name, put, number, referer in (
        ("waiting", queue.push, most, False),
        ("waiting_referer", queue.push, fewer(most), True),
        ("seen", seen.request_seen, most, False),
    ):
        before = server.info("memory")["used_memory"]
        for n, request in enumerate(requests(spider, number, referer), 1):
            put(request)
            if n % BATCH == 0 or n == number:
                pipeline.execute()
        found[name] = (server.info("memory")["used_memory"] - before) / number
    print(json.dumps(found))


if __name__ == "__main__":
    main()
