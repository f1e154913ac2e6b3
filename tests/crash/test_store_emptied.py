"""The server forgets the crawl in the middle of it: said loudly, never called finished, and mended."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Literal

import pytest
import redis

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.outages import fleet_of_three
from tests.crash.rounds import a_shape
from tests.crash.spiders import LingeringSpider, SeedsSpider, SiteSpider
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

LOUD = "CRITICAL: redis://127.0.0.1"


def forget(server: RedisServer, how: str) -> None:
    if how == "emptied":
        with redis.Redis(port=server.port) as client:
            client.flushall()
    else:
        server.kill()
        server.start()


@pytest.mark.parametrize(("kind", "how"), [("tree", "emptied"), ("random", "restarted without what it had")])
def test_no_worker_calls_it_finished_and_the_next_start_reaches_every_page(
    kind: Literal["tree", "random"], how: str, forgetful_server: RedisServer, tmp_path: Path
) -> None:
    server = forgetful_server
    shape = a_shape(kind, seed=6, pages=200)
    with (
        running(shape) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url) as fleet,
    ):
        with fleet_of_three(fleet) as workers:
            site.wait(pages=50)
            for worker in workers:
                fleet.suspend(worker)
        held = fleet.held_by(*workers)
        assert held
        forget(server, how)
        for worker in workers:
            worker.signal(signal.SIGCONT)
        reasons = [worker.ended()["finish_reason"] for worker in workers]
        assert reasons == ["fleet_store_emptied"] * 3
        for worker in workers:
            assert worker.text().count(LOUD) == 1
            assert "The crawl does not count as finished" in worker.text()
        assert not held.keys() - site.arrivals().keys()
        snapshot = fleet.snapshot()
        assert snapshot.status != "finished"
        assert snapshot.counts.open == 0
        with fleet_of_three(fleet):
            pass
        fleet.finish()
        assert not site.lost()


def test_links_that_were_lost_with_the_store_are_not_taken_for_known(
    forgetful_server: RedisServer, tmp_path: Path
) -> None:
    """A page is put back whose links were stored, and forgotten: run again, it gives them again."""
    shape = Shape("tree", pages=60, links=6, seed=2)
    gate = tmp_path / "gate"
    with (
        running(shape) as site,
        Fleet(
            tmp_path,
            LingeringSpider,
            url=forgetful_server.url,
            start_url=site.start_url,
            gate=str(gate),
            # It holds ten at most.
            settings={"CONCURRENT_REQUESTS": 1},
        ) as fleet,
    ):
        worker = fleet.start()
        fleet.wait(lambda look: look.counts.leased == 10, "it holds all it may")
        fleet.wait(lambda look: look.counts.waiting > 0, "links are stored while their pages still run")
        forget(forgetful_server, "emptied")
        worker.logged("The crawl does not count as finished")
        gate.touch()
        assert worker.ended()["finish_reason"] == "fleet_store_emptied"
        fleet.start()
        fleet.finish()
        assert not site.lost()


def test_workers_that_wait_for_the_seeds_do_not_wait_for_ever(
    forgetful_server: RedisServer, tmp_path: Path
) -> None:
    shape = Shape("tree", pages=40)
    gate = tmp_path / "gate"
    with running(shape) as site:
        seeds = [site.url(f"/p/{n}") for n in range(shape.pages)]
        with Fleet(tmp_path, SeedsSpider, url=forgetful_server.url, seeds=seeds, gate=str(gate)) as fleet:
            workers = [fleet.start(), fleet.start()]
            site.wait(pages=shape.pages // 2)
            forget(forgetful_server, "emptied")
            for worker in workers:
                worker.logged("The crawl does not count as finished")
            gate.touch()
            assert [worker.ended()["finish_reason"] for worker in workers] == ["fleet_store_emptied"] * 2
            fleet.start()
            fleet.finish()
        assert not site.lost()
