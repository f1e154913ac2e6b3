"""What a crash costs: pages lost and repeated, by the log of the site: ``python -m benchmarks.loss``.

- A worker is killed (SIGKILL) at about a third of the pages, started again with the same command, and runs
  to its end. Which pages were never fetched, which were asked for twice, and how did it say it ended?
- The server of a crawl is away for some seconds in the middle of it.

Two crawls run at a time: nothing here is about speed. Scrapy in memory is not measured: all it had found is
lost by nature, and it begins anew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks import command, peer
from benchmarks.crawl import ADDON, VARIANTS
from benchmarks.host import serving
from benchmarks.loss_report import NEEDS_PEER, ON_SERVER, SIDES, goals, noise, plots, tables
from benchmarks.measure import scratch, start_worker
from benchmarks.proxy import far
from benchmarks.worker import LinksSpider
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.ops.site import RunningSite, Shape, running
from scrapy_fleet.settings import open_store

__all__ = ["FULL", "QUICK", "SHORT", "goals", "main", "measure", "noise", "plots", "tables"]

SITES = {
    "tree": Shape("tree", links=10, slow=1.0, delay=(0.05, 0.1)),
    "links": Shape("links", links=20, slow=1.0, delay=(0.05, 0.1)),
}
"""Pages take their time, so that there are requests in flight when it happens."""
COMMON: dict[str, Any] = {"CONCURRENT_REQUESTS": 16, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}
"""As Scrapy has it by itself; what is in flight is what others lose, so more would be worse for them."""
LIMIT = 120.0
"""Seconds after which a crawl is said not to end; all of them take a few."""
ENDLESS = "did not end"
AT_A_TIME = 2

QUICK: dict[str, Any] = {
    "pages": {"tree": 80},
    "rounds": {"tree": 1},
    "outages": ["refused"],
    "seconds": 0.5,
    "sides": ["fleet-redis"],
}
SHORT: dict[str, Any] = {
    "pages": {"tree": 1000, "links": 500},
    "rounds": {"tree": 2, "links": 1},
    "outages": ["refused"],
    "sides": ["jobdir", "jobdir-sqlite", "peer", "fleet", "fleet-redis"],
}
FULL: dict[str, Any] = {
    "pages": {"tree": 2000, "links": 1000},
    "rounds": {"tree": 5, "links": 3},
    "outages": ["refused", "suspended"],
    "outage_rounds": 3,
}
"""Not fewer pages in the tree: Scrapy writes its file of seen URLs some hundred at a time, and a crawl that
was killed before begins anew."""


class Place(NamedTuple):
    """Where one crawl runs, and how to start it."""

    site: RunningSite
    folder: str
    settings: dict[str, Any]
    python: str

    def start(self) -> subprocess.Popen[bytes]:
        """A worker; the command is the same every time."""
        job = {"url": self.site.start_url, "settings": {**COMMON, **self.settings}}
        return start_worker(job, self.folder, self.python)

    def ended(self, worker: subprocess.Popen[bytes]) -> str:
        """How it says that it ended."""
        try:
            code = worker.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return ENDLESS
        lines = Path(self.folder, f"out-{worker.pid}").read_text(encoding="utf-8").splitlines()
        return f"exit code {code}" if code or not lines else str(json.loads(lines[-1])["reason"])

    def held(self) -> Counter[str] | None:
        """The paths that the worker of a fleet holds, as its store sees it."""
        if "FLEET_URL" not in self.settings:
            return None
        store = open_store(self.settings["FLEET_URL"], LinksSpider.name, create=False)
        decode = Codec(LinksSpider(url=self.site.start_url)).decode
        try:
            rows = store.scan("leased", limit=100_000)
        finally:
            store.close()
        return Counter(urlsplit(decode(row.payload).url).path for row in rows)


@contextmanager
def place(side: str, shape: Shape, python: str | None, port: int | None = None) -> Iterator[Place]:
    """A fresh site, folder and, where one is needed and none is given, server."""
    with ExitStack() as stack:
        if port is None:
            port = stack.enter_context(serving()).port if side in ON_SERVER else 0
        folder, site = stack.enter_context(scratch()), stack.enter_context(running(shape))
        own = python if python and side in NEEDS_PEER else sys.executable
        yield Place(site, folder, settings_of(side, folder, port), own)


@contextmanager
def working(there: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that is killed at the end of the block, if it still runs."""
    worker = there.start()
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def settings_of(side: str, folder: str, port: int) -> dict[str, Any]:
    server = f"redis://127.0.0.1:{port}/0"
    match side:
        case "jobdir-fifo":
            return {"JOBDIR": f"{folder}/job", "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue"}
        case "peer":
            return {**peer.SETTINGS, "REDIS_URL": server}
        case "fleet-redis":
            return {**ADDON, "FLEET_URL": server}
    stored = VARIANTS[side].settings.items()
    return {name: value.format(folder=folder) if isinstance(value, str) else value for name, value in stored}


def repeated(site: RunningSite) -> Counter[str]:
    """What was asked for more often than in a crawl without troubles."""
    expected = Counter(site.site.pages())
    # The start request is not filtered, so a link to the start page brings it a second time.
    expected["/p/0"] += site.site.shape.kind == "links"
    return site.arrivals() - expected


def judged(site: RunningSite, reason: str) -> dict[str, Any]:
    lost, again = len(site.lost()), repeated(site).total()
    return {"pages": site.site.shape.pages, "lost": lost, "repeated": again, "reason": reason}


def killed(side: str, shape: Shape, at: int, python: str | None, tries: int = 5) -> dict[str, Any]:
    """Kill the worker at this page, and let it go on."""
    with place(side, shape, python) as there:
        with working(there):
            there.site.wait(pages=at, timeout=LIMIT)
        fetched, held = len(there.site.visits()), there.held()
        if fetched == shape.pages and tries > 1:  # on a busy machine: it was over before it could be killed
            return killed(side, shape, at, python, tries - 1)
        with working(there) as worker:
            found = judged(there.site, there.ended(worker)) | {"at": fetched}
        if held is not None:
            found |= {"held": held.total(), "not_held": (repeated(there.site) - held).total()}
        return found


def outage(side: str, kind: str, shape: Shape, at: int, seconds: float, python: str | None) -> dict[str, Any]:
    """The server is away at this page: it refuses connections, or stands still."""
    with (
        serving() as host,
        far(host.port, 0) as proxy,
        place(side, shape, python, proxy.port) as there,
        working(there) as worker,
    ):
        there.site.wait(pages=at, timeout=LIMIT)
        fetched = len(there.site.visits())
        if kind == "refused":
            proxy.away()
        else:
            os.kill(host.pid, signal.SIGSTOP)
        time.sleep(seconds)
        if kind == "refused":
            proxy.back()
        else:
            os.kill(host.pid, signal.SIGCONT)
        return judged(there.site, there.ended(worker)) | {"at": fetched}


def measure(
    pages: dict[str, int],
    rounds: dict[str, int],
    outages: list[str],
    *,
    outage_rounds: int = 1,
    seconds: float = 3.0,
    sides: list[str] | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """``pages`` and ``rounds`` by site; ``seconds`` is how long the server is away."""
    results: dict[str, Any] = {"pages": pages, "seconds": seconds}
    chosen = sides or list(SIDES)
    python = peer.look(results, wanted=bool(NEEDS_PEER & set(chosen)))
    chosen = [side for side in chosen if python or side not in NEEDS_PEER]
    chance = Random(seed)
    kills: dict[str, Any] = {site: {side: [] for side in chosen} for site in rounds}
    away: dict[str, Any] = {kind: {side: [] for side in chosen if side in ON_SERVER} for kind in outages}
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        waiting = []
        for number in range(max(*rounds.values(), outage_rounds)):
            order = chosen[number % len(chosen) :] + chosen[: number % len(chosen)]
            shapes = {site: replace(SITES[site], pages=pages[site], seed=seed + number) for site in rounds}
            at = {site: chance.randint(pages[site] // 4, pages[site] * 5 // 12) for site in rounds}
            for site, shape in shapes.items():
                for side in order if number < rounds[site] else ():
                    one = threads.submit(killed, side, shape, at[site], python)
                    waiting.append((one, kills[site][side], f"killed, {site}: {SIDES[side]}"))
            for kind in outages if number < outage_rounds else ():
                for side in away[kind]:
                    one = threads.submit(outage, side, kind, shapes["tree"], at["tree"], seconds, python)
                    waiting.append((one, away[kind][side], f"{kind}: {SIDES[side]}"))
        for one, runs, title in waiting:
            found = one.result()
            runs.append(found)
            print(
                f"{title:52} at {found['at']:4} of {found['pages']}: {found['lost']} lost, "
                f"{found['repeated']} repeated, {found['reason']}",
                flush=True,
            )
    return {**results, "kills": kills, "outages": away}


def main(arguments: list[str] | None = None) -> None:
    args = command.parser("loss", "Count what a crash costs.").parse_args(arguments)
    results = measure(**command.size_of(args, QUICK, SHORT, FULL))
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
