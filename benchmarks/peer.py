"""scrapy-redis, to be measured beside us: in an environment of its own, which is made when it is missing.

``python -m benchmarks.peer PORT NUMBER`` (with that environment's Python) fills a server with requests by
way of scrapy-redis and prints what each kind of record takes of the server's memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from scrapy import Request, Spider

from benchmarks.measure import ROOT
from benchmarks.worker import LinksSpider

ENVIRONMENT = ROOT / ".venv-bench"
BATCH = 1000

SETTINGS: dict[str, Any] = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
}
SHARED_STATS = {"STATS_CLASS": "scrapy_redis.stats.RedisStatsCollector"}


class NoPeer(Exception):
    """scrapy-redis cannot be installed."""


def python() -> str:
    """The Python that has scrapy-redis and the Scrapy that we have."""
    found = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if found.exists() and subprocess.run([found, "-c", "import scrapy_redis"], check=False).returncode == 0:
        return str(found)
    print(f"making {ENVIRONMENT.name} for scrapy-redis", flush=True)
    try:
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoPeer(f"no environment can be made ({error})") from error
    wanted = ["scrapy-redis", f"scrapy=={version('scrapy')}", f"redis=={version('redis')}"]
    command = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise NoPeer(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed")
    return str(found)


def peer_version(interpreter: str) -> str:
    code = "from importlib.metadata import version; print(version('scrapy-redis'))"
    done = subprocess.run([interpreter, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


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
