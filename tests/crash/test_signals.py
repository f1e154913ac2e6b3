"""Ctrl-C once, Ctrl-C twice, and a worker that stands still for a while."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.rounds import a_shape, arrivals_of_a_clean_crawl
from tests.crash.spiders import SiteSpider

pytestmark = pytest.mark.crash

SLOW = Shape("tree", pages=120, links=5, seed=3, redirects=0.1, failing=0.1, slow=0.8, delay=(0.1, 0.4))


def test_one_ctrl_c_ends_and_settles_what_is_in_flight(tmp_path: Path) -> None:
    with running(SLOW) as site, Fleet(tmp_path, SiteSpider, start_url=site.start_url) as fleet:
        workers = [fleet.start(), fleet.start()]
        site.wait(pages=30)
        for worker in workers:
            worker.signal(signal.SIGINT)
        assert [worker.ended()["finish_reason"] for worker in workers] == ["shutdown", "shutdown"]
        stopped = fleet.snapshot()
        assert (stopped.status, stopped.counts.leased, stopped.workers) == ("stopped", 0, ())
        assert stopped.counts.waiting > 0
        fleet.start()
        fleet.finish()
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
        assert fleet.items() == list(range(SLOW.pages))


def test_two_ctrl_cs_lose_nothing(tmp_path: Path) -> None:
    with running(SLOW) as site, Fleet(tmp_path, SiteSpider, start_url=site.start_url) as fleet:
        workers = [fleet.start(), fleet.start()]
        site.wait(pages=30)
        for worker in workers:
            worker.signal(signal.SIGINT)
        for worker in workers:
            worker.logged("Received SIGINT, shutting down gracefully")
            worker.signal(signal.SIGINT)
            worker.gone()
        held = fleet.held_by(*workers)
        fleet.start()
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(SLOW.pages))


@pytest.mark.parametrize("meanwhile", ["the crawl goes on", "the crawl finishes"])
def test_a_suspended_worker_is_given_up_and_does_no_harm_when_it_comes_back(
    meanwhile: str, url: str | None, tmp_path: Path
) -> None:
    shape = a_shape("tree", seed=5, pages=200)
    settings = {"FLEET_WORKER_TIMEOUT": 2}
    with (
        running(shape) as site,
        Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url, settings=settings) as fleet,
    ):
        sleeper = fleet.start()
        with fleet.held_open():
            other = fleet.start()
            site.wait(pages=50)
            fleet.suspend(sleeper)
            held = fleet.held_by(sleeper)
            fleet.wait(lambda look: sleeper.pid not in {w.pid for w in look.workers}, "it is given up")
            if meanwhile == "the crawl goes on":
                sleeper.signal(signal.SIGCONT)
                sleeper.logged("It goes on under a new name")
        if meanwhile == "the crawl finishes":
            assert other.ended()["finish_reason"] == "finished"
            assert fleet.snapshot().status == "finished"
            sleeper.signal(signal.SIGCONT)
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert fleet.snapshot().run == 1
        assert not site.lost()
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(shape.pages))
        assert fleet.snapshot().counts.dead == 0
