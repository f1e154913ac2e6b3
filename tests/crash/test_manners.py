"""Polite as a fleet, with the site as the judge: many workers, and whatever becomes of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scrapy_fleet.model import Plan, Rule
from scrapy_fleet.ops.site import RunningSite, Shape, running
from tests.crash.fleet import Fleet
from tests.crash.manners import Span, idle, too_close, too_many
from tests.crash.spiders import ListSpider
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

WORKERS = 4
DELAY = 1.0
TIMEOUT = 2.0
HOUR = 3600.0


def polite_fleet(folder: Path, site: RunningSite, url: str | None, **settings: Any) -> Fleet:
    urls = [site.url(f"/p/{n}") for n in range(site.site.shape.pages)]
    fixed = {"FLEET_WORKER_TIMEOUT": TIMEOUT, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    return Fleet(folder, ListSpider, url=url, urls=urls, settings={**fixed, **settings})


def start_all(fleet: Fleet) -> None:
    """Workers whose clocks differ by hours."""
    for worker in [fleet.begin(skew=number * HOUR) for number in range(WORKERS)]:
        worker.opened()


def test_a_host_is_asked_at_its_pace(tmp_path: Path, url: str | None) -> None:
    with (
        running(Shape("flat", pages=36, hosts=3)) as site,
        polite_fleet(tmp_path, site, url, DOWNLOAD_DELAY=DELAY, RANDOMIZE_DOWNLOAD_DELAY=False) as fleet,
    ):
        start_all(fleet)
        fleet.finish()
        assert not site.lost()
        assert not too_close(site, 0.9 * DELAY)
        assert not idle(site, 1.2 * DELAY)


def test_the_pace_varies_within_its_jitter(tmp_path: Path, url: str | None) -> None:
    with (
        running(Shape("flat", pages=36, hosts=3)) as site,
        polite_fleet(tmp_path, site, url, DOWNLOAD_DELAY=DELAY) as fleet,
    ):
        start_all(fleet)
        fleet.finish()
        assert not site.lost()
        assert not too_close(site, 0.5 * DELAY)


def test_the_pace_is_kept_through_kills_and_outages(tmp_path: Path, url: str | None, request: Any) -> None:
    random = Random(5)
    plan = Plan(rule=Rule(delay=DELAY, concurrency=8))
    trouble: list[Span] = []
    with (
        running(Shape("flat", pages=72, hosts=3)) as site,
        polite_fleet(tmp_path, site, url, DOWNLOAD_DELAY=DELAY, RANDOMIZE_DOWNLOAD_DELAY=False) as fleet,
    ):
        start_all(fleet)
        with fleet.held_open(plan):
            for number in range(1, 7):
                site.wait(pages=9 * number)
                began = time.monotonic()
                if number % 3:
                    random.choice(fleet.running()).kill()
                    fleet.start(skew=-HOUR)
                elif url is None:
                    fleet.suspend(fleet.running()[0])
                    time.sleep(1.5 * TIMEOUT)
                    fleet.running()[0].signal(signal.SIGCONT)
                else:
                    server: RedisServer = request.getfixturevalue("server")
                    assert server.process is not None
                    os.kill(server.process.pid, signal.SIGSTOP)
                    time.sleep(1.5 * TIMEOUT)
                    os.kill(server.process.pid, signal.SIGCONT)
                # What a dead worker had reserved is lost time, within its timeout.
                trouble.append((began, time.monotonic() + TIMEOUT + 1))
        fleet.finish()
        assert not site.lost()
        assert not too_close(site, 0.9 * DELAY)
        assert not idle(site, 1.2 * DELAY, but=trouble)


def test_a_host_has_no_more_in_hand_than_its_limit(tmp_path: Path, url: str | None) -> None:
    random = Random(6)
    plan = Plan(rule=Rule(concurrency=3))
    with (
        running(Shape("flat", pages=300, hosts=2, slow=1.0, delay=(0.05, 0.15))) as site,
        polite_fleet(tmp_path, site, url, CONCURRENT_REQUESTS_PER_DOMAIN=3) as fleet,
    ):
        start_all(fleet)
        with fleet.held_open(plan):
            for number in range(1, 5):
                site.wait(pages=50 * number)
                random.choice(fleet.running()).kill()
                fleet.start()
        fleet.finish()
        assert not site.lost()
        assert not too_many(site, 3)
