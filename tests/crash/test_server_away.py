"""The server of a fleet is away for a while: the crawl pauses, says so once, and goes on by itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import redis

from scrapy_fleet.ops.site import running
from scrapy_fleet.store.redis.server import script
from tests.crash.fleet import Fleet
from tests.crash.outages import OUTAGES, PAUSED, SHAPE, Outage, exact, fleet_of_three, through_an_outage
from tests.crash.rounds import arrivals_of_a_clean_crawl
from tests.crash.spiders import SiteSpider
from tests.proxy import Moment, Proxy
from tests.servers import RedisServer

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("how", OUTAGES)
def test_nothing_is_lost_nor_repeated(how: Outage, server: RedisServer, tmp_path: Path) -> None:
    assert not through_an_outage(tmp_path, server, how, seconds=3)


def test_workers_that_were_silent_for_too_long_are_given_up_and_repeat_only_what_they_held(
    server: RedisServer, tmp_path: Path
) -> None:
    with Proxy(server.port) as proxy, running(SHAPE) as site:
        fleet = Fleet(
            tmp_path,
            SiteSpider,
            url=f"{proxy.url}?socket_timeout=1",
            start_url=site.start_url,
            settings={"FLEET_WORKER_TIMEOUT": 1},
        )
        with fleet:
            fleet.url = server.url
            with fleet_of_three(fleet) as workers:
                site.wait(pages=40)
                proxy.stall()
                for worker in workers:
                    worker.logged(PAUSED)
                held = fleet.held_by(*workers)
                fleet.wait(lambda look: sum(view.deadline_in < 0 for view in look.workers) == 3, "overdue")
                proxy.resume()
            fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not site.lost()
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(SHAPE.pages))


@pytest.mark.parametrize("moment", ["before", "in the middle of", "after"])
def test_connections_that_are_reset_by_a_commit_do_no_harm(
    moment: Moment, server: RedisServer, tmp_path: Path
) -> None:
    """Every third commit, at random; also those that bring the seed, and those by which workers leave."""
    commit = script("commit")[1].encode()
    random = Random(7)
    with Proxy(server.port) as proxy, running(SHAPE) as site:
        proxy.cut(moment, lambda request: commit in request and random.random() < 0.3)
        with Fleet(tmp_path, SiteSpider, url=proxy.url, start_url=site.start_url) as fleet:
            fleet.url = server.url
            with fleet_of_three(fleet):
                site.wait(pages=40)
            fleet.finish()
            assert not exact(fleet, site)
        assert proxy.cuts > 20


def test_a_full_server_pauses_the_crawl(server: RedisServer, tmp_path: Path) -> None:
    with (
        redis.Redis(port=server.port) as client,
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url) as fleet,
    ):
        with fleet_of_three(fleet) as workers:
            site.wait(pages=40)
            client.config_set("maxmemory", "1mb")
            for worker in workers:
                worker.logged("the server is full (maxmemory). Raise maxmemory")
                worker.logged(PAUSED)
            client.config_set("maxmemory", 0)
        fleet.finish()
        for worker in workers:
            assert worker.text().count(PAUSED) == 1
            worker.logged("The store is back")
        assert not exact(fleet, site)
