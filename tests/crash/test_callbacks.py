"""Callbacks that raise, never end, block, or take their worker along."""

from __future__ import annotations

from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import Shape, Site, running
from tests.crash.fleet import PATIENCE, Fleet, Worker
from tests.crash.rounds import arrivals_of_a_clean_crawl
from tests.crash.spiders import BlockingSpider, DeadlySpider, EndlessSpider, RaisingSpider

pytestmark = pytest.mark.crash

SHAPE = Shape("random", pages=150, links=6, seed=4, redirects=0.1, missing=0.1, failing=0.1)


def test_a_callback_that_raises_is_settled(tmp_path: Path) -> None:
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, RaisingSpider, start_url=site.start_url, trouble_at="/p/7") as fleet,
    ):
        fleet.start()
        fleet.start()
        fleet.finish()
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
        assert fleet.snapshot().counts.dead == 0
        assert fleet.items() == list(range(SHAPE.pages))


def test_a_callback_that_never_ends_is_given_up_and_the_crawl_finishes(tmp_path: Path) -> None:
    settings = {"FLEET_MAX_RUNTIME": 2}
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path, EndlessSpider, start_url=site.start_url, settings=settings, trouble_at="/p/7"
        ) as fleet,
    ):
        fleet.start()
        fleet.start()
        fleet.finish()
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
        (dead,) = fleet.scan("dead")
        assert dead.reason is not None
        assert "FLEET_MAX_RUNTIME" in dead.reason
        assert b"/p/7" in dead.payload
        assert fleet.items() == [n for n in range(SHAPE.pages) if n != 7]


def test_a_callback_that_blocks_the_loop_is_not_given_up(tmp_path: Path) -> None:
    settings = {"FLEET_WORKER_TIMEOUT": 3}
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path, BlockingSpider, start_url=site.start_url, settings=settings, trouble_at="/p/7"
        ) as fleet,
    ):
        fleet.start()
        fleet.start()
        fleet.finish()
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
        assert fleet.items() == list(range(SHAPE.pages))


def a_quiet_leaf(site: Site) -> int:
    """A page without links and troubles, in the middle of the site."""
    troubled = site.redirected | site.dead_ends | site.failing | site.delays.keys()
    leaves = [n for n in range(site.shape.pages) if n not in troubled and not site.children(n)]
    return leaves[len(leaves) // 2]


def test_a_page_that_kills_its_worker_is_the_only_one_that_dies(tmp_path: Path) -> None:
    shape = Shape("tree", pages=150, links=6, seed=4, redirects=0.1, missing=0.1, failing=0.1)
    deadly = a_quiet_leaf(Site(shape))
    gate = tmp_path / "gate"
    with (
        running(shape) as site,
        Fleet(
            tmp_path, DeadlySpider, start_url=site.start_url, trouble_at=f"/p/{deadly}", gate=str(gate)
        ) as fleet,
    ):
        fleet.start()
        fleet.start()
        # Not before both have joined: who joins takes from the dead what they held, before it is seen here.
        gate.touch()
        deaths, held = 0, Counter[str]()
        seen: set[Worker] = set()
        while running_now := fleet.running():
            wait([worker.sentinel for worker in running_now], PATIENCE)
            for worker in [w for w in fleet.workers if not w.alive and w not in seen]:
                seen.add(worker)
                if worker.was_killed:
                    deaths += 1
                    held += fleet.held_by(worker)
                    fleet.start()
            assert deaths < 10, "workers die and die"
        assert fleet.snapshot().status == "finished"
        assert deaths == 5
        (dead,) = fleet.scan("dead")
        assert f"/p/{deadly}".encode() in dead.payload
        assert dead.reason is not None
        assert "died 5 times" in dead.reason
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == [n for n in range(shape.pages) if n != deadly]
