"""The server comes back with an older copy of the crawl, as after a crash without an append-only file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scrapy_fleet.model import Snapshot
from scrapy_fleet.ops.site import running
from tests.crash.fleet import Fleet, adds_up
from tests.crash.outages import fleet_of_three
from tests.crash.rounds import a_shape
from tests.crash.spiders import SiteSpider
from tests.servers import RedisServer

pytestmark = pytest.mark.crash


def test_what_is_lost_is_done_again_and_no_page_is_missed(
    forgetful_server: RedisServer, tmp_path: Path
) -> None:
    server = forgetful_server
    with (
        running(a_shape("tree", seed=8, pages=200)) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url) as fleet,
    ):
        with fleet_of_three(fleet) as workers:
            site.wait(pages=40)
            fleet.wait(lambda look: look.status == "running", "the seeds are in")
            server.client().save()
            saved = fleet.snapshot().counts
            held: list[Counter[str]] = []

            def all_hold_something(look: Snapshot) -> bool:
                held[:] = [fleet.held_by(worker) for worker in workers]
                return all(held)

            fleet.wait(all_hold_something, "every worker holds something")
            fleet.wait(
                lambda look: (
                    look.counts.done > saved.done + 40
                    and all(fleet.held_by(worker) != then for worker, then in zip(workers, held, strict=True))
                ),
                "much more is done, by every worker",
            )
            server.kill()
            server.start()
            for worker in workers:
                worker.logged("The store has lost the newest part of this crawl")
        reasons = [worker.ended()["finish_reason"] for worker in workers]
        # It may have been more than a worker can know of: the next start says that it is finished.
        assert reasons == ["fleet_store_emptied"] * 3
        assert not site.lost()
        assert adds_up(fleet.snapshot().counts)
        fleet.start()
        fleet.finish()
        assert not site.lost()
