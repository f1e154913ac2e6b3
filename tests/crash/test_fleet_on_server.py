"""What three workers on one server promise: seeds once, an exact end, a quick takeover, no mixing."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.outages import exact, fleet_of_three
from tests.crash.rounds import arrivals_of_a_clean_crawl, judge_end
from tests.crash.spiders import SeedsSpider, SiteSpider
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

TIMEOUT = 2.0


def test_workers_that_start_together_run_the_seeds_once(server: RedisServer, tmp_path: Path) -> None:
    shape = Shape("tree", pages=60)
    gate = tmp_path / "gate"
    with running(shape) as site:
        seeds = [site.url(f"/p/{n}") for n in range(shape.pages)]
        with Fleet(tmp_path, SeedsSpider, url=server.url, seeds=seeds, gate=str(gate)) as fleet:
            for worker in [fleet.begin() for _ in range(3)]:
                worker.opened()
            gate.touch()
            fleet.finish()
        assert site.arrivals() == Counter(f"/p/{n}" for n in range(shape.pages))
        assert fleet.items() == list(range(shape.pages))


def test_the_fleet_ends_when_its_last_page_does(server: RedisServer, tmp_path: Path) -> None:
    """Two workers of three have nothing to do for seconds, while the third waits for its page."""
    shape = Shape("flat", pages=2, links=1, slow=1.0, delay=(2.5, 2.5))
    with (
        running(shape) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url) as fleet,
    ):
        with fleet_of_three(fleet):
            pass
        begun = time.monotonic()
        ends = fleet.finish()
        assert len(ends) == 3
        assert not judge_end(site, ends, begun)
        assert not exact(fleet, site)


def test_what_a_dead_worker_held_is_taken_over_in_time(server: RedisServer, tmp_path: Path) -> None:
    shape = Shape("tree", pages=90, links=6, seed=4, slow=1.0, delay=(0.2, 0.4))
    with (
        running(shape) as site,
        Fleet(
            tmp_path,
            SiteSpider,
            url=server.url,
            start_url=site.start_url,
            settings={"FLEET_WORKER_TIMEOUT": TIMEOUT},
        ) as fleet,
    ):
        doomed = fleet.start()
        with fleet.held_open():
            fleet.start()
            site.wait(pages=30)
            doomed.kill()
            killed_at = time.monotonic()
            held = fleet.held_by(doomed)
        fleet.finish()
        # What it had sent may arrive a moment after its death.
        again = [
            line.time - killed_at
            for line in site.log()
            if line.event == "arrive" and line.path in held and line.time > killed_at + TIMEOUT / 4
        ]
        # One second more for a busy machine.
        assert min(again) < TIMEOUT + 1 + 1
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not site.lost()
        assert not site.arrivals() - expected - held


def test_two_crawls_on_one_server_do_not_see_each_other(server: RedisServer, tmp_path: Path) -> None:
    """The same pages, at the same time, under names that begin alike."""
    shape = Shape("tree", pages=80, links=5, seed=3, redirects=0.1, failing=0.1, slow=0.2, delay=(0.02, 0.1))
    fleets: list[Fleet] = []
    with running(shape) as one, running(shape) as two:
        for site, name in ((one, "news"), (two, "news}:{daily")):
            folder = tmp_path / str(len(fleets))
            folder.mkdir()
            fleets.append(
                Fleet(
                    folder,
                    SiteSpider,
                    url=server.url,
                    start_url=site.start_url,
                    settings={"FLEET_CRAWL": name},
                )
            )
        with fleets[0] as first, fleets[1] as second:
            first.start()
            doomed = second.start()
            with first.held_open(), second.held_open():
                first.start()
                two.wait(pages=10)
                doomed.kill()
            held = second.held_by(doomed)
            first.finish()
            assert second.snapshot().counts.open > 0
            assert not exact(first, one)
            second.start()
            second.finish()
        expected = arrivals_of_a_clean_crawl(two.site)
        assert not two.lost()
        assert not two.arrivals() - expected - held
        assert second.items() == list(range(shape.pages))
