"""How fast a task is on its way, and what idle workers cost: ``python -m benchmarks.feeding``.

- From when a task is pushed to a crawl that has nothing to do until its request is at the site.
- The server's CPU while many workers have nothing to do.
- The speed of pages that answer at once, with and without one slow page among them.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from benchmarks import command, peer
from benchmarks.host import Host, serving
from benchmarks.measure import ROOT, Goal, Spread, scratch, table
from scrapy_fleet.crawl.tasks import BEATS, WATCH
from scrapy_fleet.model import TASKS, Batch, Plan, Worker
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.ops.site.running import RunningSite
from scrapy_fleet.pushing import task_entry
from scrapy_fleet.scrapy_redis.feeding import LONGEST
from scrapy_fleet.settings import open_store

MOST_MS = 50
"""From a push until its request is at the site, the median."""
KEPT = 0.9
"""Of the speed, with one slow page among the others."""
MOST_IDLE = 0.05
"""Of the server's core, for the idle workers."""
NAMES = {"ours": "scrapy-fleet, RedisSpider", "pushed": "scrapy-fleet, FleetSpider", "theirs": "scrapy-redis"}
WARM = 2
"""Pushes that only see that the workers are there."""
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
def workers(side: str, url: str, number: int, theirs: str | None) -> Iterator[None]:
    """Workers of a side; ``theirs`` is the Python that has scrapy-redis."""
    python = theirs if side == "theirs" and theirs else sys.executable
    words = [python, "-c", CODE.format(base=SPIDERS[side]), json.dumps(settings_of(side, url))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    some = [subprocess.Popen(words, env=environment) for _ in range(number)]
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
    """Milliseconds from each push until its page was asked for, without the first ones."""
    chance = random.Random(1)
    pushed: dict[str, float] = {}
    for number in range(WARM + pushes):
        path = f"/p/{number}"
        pushed[path] = time.monotonic()
        push(site.url(path))
        site.wait(pages=number + 1)
        time.sleep(pause * (0.5 + chance.random()))
    arrived = {line.path: line.time for line in site.log() if line.event == "arrive"}
    return sorted(1000 * (arrived[path] - at) for path, at in list(pushed.items())[WARM:])


def latency(
    host: Host, folder: str, pushes: int, crowds: Sequence[int], python: str | None
) -> list[dict[str, Any]]:
    redis_url = f"redis://127.0.0.1:{host.port}/0"
    sides = [(side, redis_url, number) for side in ("ours", "pushed") for number in crowds]
    sides += [("pushed", f"sqlite://{folder}/fed.db", 1)]
    if python is not None:
        sides.append(("theirs", redis_url, 1))
    rows = []
    for side, url, number in sides:
        host.empty()
        # It looks for tasks when it is idle, every five seconds.
        few, pause = (max(2, pushes // 6), 2.0) if side == "theirs" else (pushes, 0.25)
        with running(Shape("tree", pages=pushes + WARM + 1)) as site, workers(side, url, number, python):
            found = delays(site, pusher(side, url), few, pause)
        place = "SQLite" if url.startswith("sqlite") else host.name
        rows.append({"side": side, "store": place, "workers": number, "ms": found})
        print(f"{NAMES[side]}, {place}, workers: {number}: {statistics.median(found):.0f} ms", flush=True)
    return rows


def idle(host: Host, number: int, seconds: float) -> dict[str, float]:
    """The server's CPU, as a part of a core, while so many workers of a RedisSpider have nothing to do."""
    host.empty()
    url = f"redis://127.0.0.1:{host.port}/0"
    every = min(LONGEST, WATCH * number)
    stores: list[Any] = [open_store(url, "idle") for _ in range(number)]
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
        store = stores[index]
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
    print(f"{number} idle workers: {used / took:.1%} of a core on the server", flush=True)
    return {"workers": number, "server_share": used / took, "seconds": took}


def rate(host: Host, side: str, pages: int, slow: float, python: str | None) -> float:
    """Pages a second while a list of tasks is worked off, 16 at a time; maybe beside one slow page."""
    url = f"redis://127.0.0.1:{host.port}/0"
    host.empty()
    with (
        running(Shape("tree", pages=pages + 1)) as site,
        running(Shape("tree", pages=2, links=1, slow=1.0, delay=(slow, slow))) as other,
        redis.Redis.from_url(url) as client,
        workers(side, url, 1, python),
    ):
        client.rpush(KEY, site.url("/p/0"))  # it is there
        site.wait(pages=1)
        time.sleep(1)
        if slow:
            client.rpush(KEY, other.url("/p/1"))
        client.rpush(KEY, *(site.url(f"/p/{number}") for number in range(1, pages + 1)))
        site.wait(pages=pages + 1, timeout=300)
        times = sorted(line.time for line in site.log() if line.event == "done")[1:]
    # From the first to the last: when the feeding begins is measured elsewhere.
    return (len(times) - 1) / (times[-1] - times[0])


def rates(host: Host, pages: int, rounds: int, slow: float, python: str | None) -> dict[str, Any]:
    """By side, pages a second without and with the slow page, of every round."""
    sides = ["ours"] if python is None else ["ours", "theirs"]
    found: dict[str, Any] = {side: {"fast": [], "slow": []} for side in sides}
    for _ in range(rounds):
        for side in sides:
            # It stands still while the slow page is under way: fewer pages tell as much.
            number = pages // 4 if side == "theirs" else pages
            for kind, seconds in (("fast", 0.0), ("slow", slow)):
                found[side][kind].append(rate(host, side, number, seconds, python))
            fast, among = (found[side][kind][-1] for kind in ("fast", "slow"))
            print(f"{NAMES[side]}: {fast:.0f} pages/s, with a page of {slow:g} s {among:.0f}", flush=True)
    return found


def measure(
    pushes: int,
    pages: int,
    rounds: int,
    *,
    crowds: Sequence[int] = (1, 4),
    slow: float = 10.0,
    idlers: int = 200,
    seconds: float = 10.0,
    beside: bool = True,
) -> dict[str, Any]:
    results: dict[str, Any] = {"rounds": rounds, "slow": slow}
    python = peer.look(results, wanted=beside)
    with serving() as host, scratch() as folder:
        results["server"] = host.name
        results["latency"] = latency(host, folder, pushes, crowds, python)
        results["rates"] = rates(host, pages, rounds, slow, python)
        results["idle"] = idle(host, idlers, seconds)
    return results


def kept(found: dict[str, list[float]]) -> float:
    """What is left of the speed beside a slow page: the median of the rounds."""
    return statistics.median(slow / fast for slow, fast in zip(found["slow"], found["fast"], strict=True))


def tables(results: dict[str, Any]) -> str:
    first = [
        [
            NAMES[row["side"]],
            row["store"],
            str(row["workers"]),
            f"{statistics.median(row['ms']):,.0f} ms",
            f"{row['ms'][int(0.9 * len(row['ms']))]:,.0f} ms",
        ]
        for row in results["latency"]
    ]
    second = [
        [NAMES[side], *(Spread.of(found[kind]).show() for kind in ("fast", "slow")), f"{kept(found):.0%}"]
        for side, found in results["rates"].items()
    ]
    head = ["", "pages/s", f"with a page of {results['slow']:g} s", "kept"]
    idle, beside = results["idle"], results["peer"] or f"is missing: {results['no_peer']}"
    return (
        f"{results['server']}, scrapy-redis {beside}; from a push until its request is at the site:\n\n"
        f"{table(['fed by', 'store', 'workers', 'median', '9 of 10'], first)}\n\n"
        f"A list of tasks is worked off, 16 at a time, medians of {results['rounds']} (lowest to highest):"
        f"\n\n{table(head, second)}\n\n"
        f"{idle['workers']} workers of a RedisSpider that have nothing to do take {idle['server_share']:.1%} "
        f"of the server's core."
    )


def goals(results: dict[str, Any]) -> list[Goal]:
    found = []
    for row in results["latency"]:
        if row["side"] != "theirs":
            what = f"push to request, {NAMES[row['side']]}, {row['store']}, workers: {row['workers']}"
            found.append(Goal(what, statistics.median(row["ms"]), MOST_MS, at_most=True, form="{:.0f} ms"))
    what = f"speed kept beside a page of {results['slow']:g} s"
    found.append(Goal(what, kept(results["rates"]["ours"]), KEPT, form="{:.0%}"))
    idle = results["idle"]
    what = f"{idle['workers']} idle workers of a RedisSpider, of the server's core"
    found.append(Goal(what, idle["server_share"], MOST_IDLE, at_most=True, form="{:.1%}"))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    return [
        f"{NAMES[side]}, {kind} pages: {spread.show()} pages/s"
        for side, found in results["rates"].items()
        for kind, values in found.items()
        if (spread := Spread.of(values)).noisy
    ]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    rows = [
        (f"{NAMES[row['side']]}, {row['store']}", statistics.median(row["ms"]))
        for row in results["latency"]
        if row["workers"] == 1
    ]
    title = "From a push until its request is at the site"
    return {"feeding.svg": plot.bars(title, rows, unit="ms", best="lower", log=True)}


QUICK: dict[str, Any] = {
    "pushes": 3,
    "pages": 60,
    "rounds": 1,
    "crowds": (1,),
    "slow": 0.2,
    "idlers": 8,
    "seconds": 0.5,
    "beside": False,
}
SHORT: dict[str, Any] = {"pushes": 9, "pages": 800, "rounds": 1, "crowds": (1,), "seconds": 4.0}
FULL: dict[str, Any] = {"pushes": 60, "pages": 2000, "rounds": 3}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("feeding", "Measure feeding.")
    parser.add_argument("--pushes", type=int)
    parser.add_argument("--pages", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--alone", action="store_true", help="without scrapy-redis")
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    options |= {name: getattr(args, name) for name in ("pushes", "pages", "rounds") if getattr(args, name)}
    if args.alone:
        options["beside"] = False
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
