"""The server comes back with an older copy of the crawl, which does not know the workers that are there.

They cannot be told from workers that were given up for their silence. Links that they had queued are lost.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from scrapy_fleet.model import Snapshot
from scrapy_fleet.ops.site import RunningSite, running
from tests.crash.fleet import Fleet, Worker
from tests.crash.rounds import a_shape
from tests.crash.spiders import SiteSpider
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

SHAPE = a_shape("tree", seed=8, pages=300)


def restart(server: RedisServer) -> None:
    server.kill()
    server.start()


def reaches_all(fleet: Fleet, site: RunningSite, *workers: Worker) -> None:
    reasons = {worker.ended()["finish_reason"] for worker in workers}
    assert reasons <= {"finished", "fleet_store_emptied"}
    if fleet.snapshot().status != "finished":
        fleet.start()
        fleet.finish()
    assert not site.lost()


def test_a_worker_that_came_after_the_copy_was_made(forgetful_server: RedisServer, tmp_path: Path) -> None:
    server = forgetful_server
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path,
            SiteSpider,
            url=server.url,
            start_url=site.start_url,
            settings={"FLEET_WORKER_TIMEOUT": 2},
        ) as fleet,
    ):
        first = fleet.start()
        site.wait(pages=5)
        fleet.wait(lambda look: look.status == "running", "the seeds are in")
        first.kill()
        server.client().save()
        done = fleet.snapshot().counts.done
        worker = fleet.start()
        fleet.wait(lambda look: look.counts.done > done + 40, "much more is done")
        restart(server)
        reaches_all(fleet, site, worker)


def test_a_worker_that_was_given_up_before_it_came_back(
    forgetful_server: RedisServer, tmp_path: Path
) -> None:
    """The server was away for longer than workers may be silent."""
    server = forgetful_server
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path,
            SiteSpider,
            url=server.url,
            start_url=site.start_url,
            settings={"FLEET_WORKER_TIMEOUT": 2},
        ) as fleet,
    ):
        late = fleet.start()
        with fleet.held_open():
            fleet.wait(lambda look: look.status == "running" and look.counts.done > 5, "the seeds are in")
            server.client().save()
            done = fleet.snapshot().counts.done
            fleet.wait(lambda look: look.counts.done > done + 40, "much more is done")
            fleet.suspend(late)
            restart(server)
            soon = fleet.start()

            def is_given_up(look: Snapshot) -> bool:
                return late.pid not in {view.pid for view in look.workers}

            fleet.wait(is_given_up, "the one that is late is given up")
            fleet.suspend(soon)
            late.signal(signal.SIGCONT)
            late.logged("It goes on under a new name")
            soon.signal(signal.SIGKILL)
        reaches_all(fleet, site, late)
