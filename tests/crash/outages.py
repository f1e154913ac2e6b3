"""A server that is away for a while, in every way a server can be, in the middle of a crawl."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from scrapy_fleet.ops.site import RunningSite, Shape, running
from tests.crash.fleet import Fleet, Worker
from tests.crash.rounds import arrivals_of_a_clean_crawl, judge_end
from tests.crash.spiders import SiteSpider
from tests.proxy import Proxy
from tests.servers import RedisServer

Outage = Literal["connection refused", "black hole", "suspended server"]
OUTAGES: tuple[Outage, ...] = ("connection refused", "black hole", "suspended server")

SHAPE = Shape("tree", pages=150, links=5, seed=4, redirects=0.1, failing=0.1, slow=0.2, delay=(0.02, 0.2))
PAUSED = "The crawl pauses until the store is back"
LONGEST_PAUSE = 2.0
"""Seconds between two tries of a worker whose store has been away for a while."""


def through_an_outage(folder: Path, server: RedisServer, how: Outage, seconds: float) -> list[str]:
    """One crawl, in the middle of which the server is away so long; what is wrong with what came of it.

    The workers are not given up: they allow each other more silence than that.
    """
    settings = {"FLEET_WORKER_TIMEOUT": 30 + 2 * seconds}
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.port))
        url = proxy.url if how == "black hole" else server.url
        site = stack.enter_context(running(SHAPE))
        fleet = stack.enter_context(
            Fleet(
                folder,
                SiteSpider,
                url=f"{url}?socket_timeout=1",
                start_url=site.start_url,
                settings=settings,
            )
        )
        with fleet_of_three(fleet) as workers:
            site.wait(pages=40)
            come_back = _take_away(how, server, proxy)
            began = time.monotonic()
            for worker in workers:
                worker.logged(PAUSED)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            come_back()
        back = time.monotonic() + LONGEST_PAUSE
        ends = fleet.finish()
        return [*_said(workers, seconds), *exact(fleet, site), *judge_end(site, ends, back)]


@contextmanager
def fleet_of_three(fleet: Fleet) -> Iterator[list[Worker]]:
    """Three workers; however fast they are, the crawl does not finish within this block."""
    workers = [fleet.start()]
    with fleet.held_open():
        workers += [fleet.start(), fleet.start()]
        yield workers


def _take_away(how: Outage, server: RedisServer, proxy: Proxy) -> Callable[[], object]:
    """Take the server away; how to bring it back."""
    if how == "connection refused":
        server.kill()
        return server.start
    if how == "black hole":
        proxy.stall()
        return proxy.resume
    assert server.process is not None
    pid = server.process.pid
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def _said(workers: list[Worker], seconds: float) -> list[str]:
    """Every worker says it once, and once a minute."""
    wrong = []
    for worker in workers:
        text = worker.text()
        paused, back = text.count(PAUSED), re.findall(r"The store is back after ([\d.]+) s", text)
        if not 1 <= paused <= 1 + seconds // 60 or len(back) != 1:
            wrong.append(
                f"{worker} said {paused} times that it pauses, and {len(back)} times that it goes on"
            )
        elif not seconds - 2 <= float(back[0]):
            wrong.append(f"{worker} went on after {back[0]} s")
    return wrong


def exact(fleet: Fleet, site: RunningSite) -> list[str]:
    """What is wrong with a crawl that nobody was killed in: nothing is lost, and nothing repeated."""
    arrivals, expected = site.arrivals(), arrivals_of_a_clean_crawl(site.site)
    wrong = []
    if lost := (expected - arrivals).keys() | site.lost():
        wrong.append(f"lost: {sorted(lost)[:10]}")
    if repeated := arrivals - expected:
        wrong.append(f"repeated: {sorted(repeated)[:10]}")
    if fleet.items() != list(range(site.site.shape.pages)):
        wrong.append("items lost or repeated")
    if fleet.snapshot().run != 1 or fleet.snapshot().counts.dead:
        wrong.append(f"{fleet.snapshot()}")
    return wrong
