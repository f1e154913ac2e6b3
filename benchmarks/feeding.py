"""How fast a task is on its way, and what idle workers cost: ``python -m benchmarks.feeding``.

- From when a task is pushed to a crawl that has nothing to do until its request is at the site.
- The server's CPU while many workers have nothing to do.
- The speed of pages that answer at once, with and without one slow page among them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from benchmarks import peer
from benchmarks.host import Host, serving
from benchmarks.measure import ROOT, scratch, table
from scrapy_fleet.crawl.tasks import BEATS, WATCH
from scrapy_fleet.model import TASKS, Batch, Plan, Worker
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.ops.site.running import RunningSite
from scrapy_fleet.pushing import task_entry
from scrapy_fleet.scrapy_redis.feeding import LONGEST
from scrapy_fleet.settings import open_store

PUSHES, IDLE_WORKERS, SECONDS = 60, 200, 10.0
KEY = "fed:start_urls"
SPIDERS = {
    "ours": "from scrapy_fleet.scrapy_redis.spiders import RedisSpider as Base",
    "theirs": "from scrapy_redis.spiders import RedisSpider as Base",
    "pushed": "from scrapy_fleet import FleetSpider as Base",
}
CODE = """
import sys, json
{base}
class Fed(Base):
    name = "fed"
    def parse(self, response):
        pass
from scrapy.crawler import CrawlerProcess
process = CrawlerProcess(json.loads(sys.argv[1]))
process.crawl(Fed)
process.start()
"""
COMMON = {
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "LOG_LEVEL": "ERROR",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


def settings_of(side: str, url: str) -> dict[str, Any]:
    if side == "ours":
        return {**COMMON, "SCHEDULER": "scrapy_fleet.scrapy_redis.scheduler.Scheduler", "REDIS_URL": url}
    if side == "theirs":
        return {**COMMON, **peer.SETTINGS, "REDIS_URL": url}
    return {**COMMON, "ADDONS": {"scrapy_fleet.Addon": 500}, "FLEET_URL": url}


@contextmanager
def workers(side: str, url: str, number: int, python: str = sys.executable) -> Iterator[None]:
    command = [python, "-c", CODE.format(base=SPIDERS[side]), json.dumps(settings_of(side, url))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    some = [subprocess.Popen(command, env=environment) for _ in range(number)]
    try:
        yield
    finally:
        for process in some:
            process.kill()
            process.wait()


def pusher(side: str, url: str) -> Callable[[str], object]:
    if side == "pushed":
        store = open_store(url, "fed")
        return lambda task: store.push((task_entry(task.encode()),))
    client = redis.Redis.from_url(url)
    return lambda task: client.rpush(KEY, task)


def delays(site: RunningSite, push: Callable[[str], object], pushes: int, pause: float) -> list[float]:
    """Milliseconds from each push until its page was asked for; the first ones see that all are there."""
    chance = random.Random(1)
    pushed: dict[str, float] = {}
    for number in range(-3, pushes):
        path = f"/p/{number + 3}"
        pushed[path] = time.monotonic()
        push(site.url(path))
        site.wait(pages=number + 4)
        time.sleep(pause * (0.5 + chance.random()))
    arrived = {line.path: line.time for line in site.log() if line.event == "arrive"}
    return sorted(1000 * (arrived[path] - at) for path, at in list(pushed.items())[3:])


def latency(host: Host, folder: str, pushes: int, python: str | None) -> list[list[str]]:
    redis_url = f"redis://127.0.0.1:{host.port}/0"
    rows = []
    sides = [
        ("ours", redis_url, 1),
        ("ours", redis_url, 4),
        ("pushed", redis_url, 1),
        ("pushed", redis_url, 4),
    ]
    sides += [("pushed", f"sqlite://{folder}/fed.db", 1)]
    if python is not None:
        sides.append(("theirs", redis_url, 1))
    for side, url, number in sides:
        host.empty()
        few = max(3, pushes // 6) if side == "theirs" else pushes
        with (
            running(Shape("tree", pages=pushes + 10)) as site,
            workers(side, url, number, python if side == "theirs" and python else sys.executable),
        ):
            found = delays(site, pusher(side, url), few, pause=2.0 if side == "theirs" else 0.25)
        names = {"ours": "RedisSpider, list", "pushed": "FleetSpider, push", "theirs": "scrapy-redis, list"}
        place = "SQLite" if url.startswith("sqlite") else host.name
        middle, late = statistics.median(found), found[int(0.9 * len(found))]
        rows.append([names[side], place, str(number), f"{middle:.0f} ms", f"{late:.0f} ms"])
        print(rows[-1], flush=True)
    return rows


def idle(host: Host, number: int, seconds: float) -> tuple[float, float]:
    """The server's CPU, as a part of a core, while so many workers of a RedisSpider have nothing to do."""
    host.empty()
    url = f"redis://127.0.0.1:{host.port}/0"
    every = min(LONGEST, WATCH * number)
    stores = [open_store(url, "idle") for _ in range(number)]
    for index, store in enumerate(stores):
        store.join(Worker(f"w{index}"), Plan(), 60)
    stores[0].commit(Batch(worker="w0", seq=1, seeded=True))
    chance = random.Random(1)
    began = time.monotonic()
    # When each beats, looks for tasks, and asks: as link.py, tasks.py and timing.py have it.
    due = [(began + chance.random() * span, span, index, what) for index in range(number) for span, what in
           ((1.0, "beat"), (every, "look"), (5.0, "ask"))]  # fmt: skip
    due.sort()
    before, seq = host.cpu(), 1
    while due[0][0] < began + seconds:
        at, span, index, what = due.pop(0)
        time.sleep(max(0.0, at - time.monotonic()))
        store: Any = stores[index]
        if what == "beat":
            store.beat(f"w{index}")
        elif what == "look":
            store.draw(KEY, 16, b"\x02")
            if WATCH * number < BEATS:
                store.waiting(TASKS)
        else:
            seq += 1
            store.commit(Batch(worker=f"w{index}", seq=seq, want=32))
        due.append((at + span, span, index, what))
        due.sort()
    used, took = host.cpu() - before, time.monotonic() - began
    for store in stores:
        store.close()
    return used / took, took


def rates(host: Host, pages: int, python: str | None) -> list[list[str]]:
    """Pages a second while a list of tasks is worked off, 16 at a time; also with one page of ten seconds."""
    url = f"redis://127.0.0.1:{host.port}/0"
    rows = []
    client = redis.Redis.from_url(url)
    for side in ("ours", "theirs") if python is not None else ("ours",):
        found = {}
        for slow in (False, True):
            host.empty()
            with (
                running(Shape("tree", pages=pages + 1)) as site,
                running(Shape("tree", pages=2, links=1, slow=1.0, delay=(10, 10))) as other,
                workers(side, url, 1, python if side == "theirs" and python else sys.executable),
            ):
                client.rpush(KEY, site.url("/p/0"))  # it is there
                site.wait(pages=1)
                time.sleep(1)
                if slow:
                    client.rpush(KEY, other.url("/p/1"))
                client.rpush(KEY, *(site.url(f"/p/{number}") for number in range(1, pages + 1)))
                site.wait(pages=pages + 1, timeout=300)
                times = sorted(line.time for line in site.log() if line.event == "done")[1:]
                # From the first to the last: when the feeding begins is measured above.
                found[slow] = (len(times) - 1) / (times[-1] - times[0])
        kept = found[True] / found[False]
        name = {"ours": "RedisSpider", "theirs": "scrapy-redis"}[side]
        rows.append([name, f"{found[False]:.0f}/s", f"{found[True]:.0f}/s", f"{100 * kept:.0f} %"])
        print(rows[-1], flush=True)
    client.close()
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.feeding", description="Measure feeding.")
    parser.add_argument("--pushes", type=int, default=PUSHES)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=IDLE_WORKERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--alone", action="store_true", help="without scrapy-redis")
    parser.add_argument("--python", type=Path, help="a Python that has scrapy-redis")
    args = parser.parse_args(arguments)
    python = None if args.alone else str(args.python or peer.python())
    with serving() as host, scratch() as folder:
        rows = latency(host, folder, args.pushes, python)
        print(table(["fed by", "store", "workers", "median", "9 of 10"], rows))
        rows = rates(host, args.pages, python)
        print(table(["fed by", "pages", "with one of 10 s", "kept"], rows))
        share, took = idle(host, args.workers, args.seconds)
        print(f"{args.workers} idle workers: {100 * share:.1f} % of a core on the server ({took:.0f} s)")


if __name__ == "__main__":
    main()
