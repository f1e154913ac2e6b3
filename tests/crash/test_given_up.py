"""A worker that was given up still has requests under way when it comes back under a new name."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.rounds import arrivals_of_a_clean_crawl
from tests.crash.spiders import GatedSpider, SiteSpider

pytestmark = pytest.mark.crash


def test_what_ends_late_does_not_settle_what_was_leased_since(url: str | None, tmp_path: Path) -> None:
    """The same page runs twice in one worker, before and after it was given up. The first try fails:
    the second must still be held, and run again when the worker dies."""
    gates = tmp_path / "gates"
    gates.mkdir()
    shape = Shape("flat", pages=10, links=9)
    with (
        running(shape) as site,
        Fleet(
            tmp_path,
            GatedSpider,
            url=url,
            start_url=site.start_url,
            gates=str(gates),
            settings={"FLEET_WORKER_TIMEOUT": 2},
        ) as fleet,
    ):
        # A first worker only brings the seed in, so that the next leases it with its very first commit.
        seeder = fleet.start()
        site.wait(visits=1)
        seeder.kill()
        worker = fleet.start()
        site.wait(visits=2)
        fleet.give_up(worker)
        worker.logged("It goes on under a new name")
        site.wait(visits=3)
        (gates / "1").write_text("raise")
        worker.logged("as this spider does")
        fleet.beats_of(worker, 2)
        assert fleet.held_by(worker) == {"/p/0": 1}
        worker.kill()
        (gates / "1").unlink()
        for n in range(1, shape.pages + 1):
            (gates / str(n)).write_text("go on")
        fleet.start()
        fleet.finish()
        assert not site.lost()
        assert fleet.items() == list(range(shape.pages))


@pytest.mark.parametrize("first", ["the news", "the failures"])
def test_a_retry_of_what_was_lost_meanwhile_does_not_run_beside_it(
    first: str, url: str | None, tmp_path: Path
) -> None:
    """Pages fail slowly, all at once. Before they do, their worker is given up, and may know it or not:
    they run again. Trying again what failed, too, would give their items twice."""
    children = 8
    shape = Shape("flat", pages=1 + children, links=children, failing=1.0, slow=1.0, delay=(2.5, 2.5))
    with (
        running(shape) as site,
        Fleet(
            tmp_path,
            SiteSpider,
            url=url,
            start_url=site.start_url,
            settings={"FLEET_WORKER_TIMEOUT": 2},
        ) as fleet,
    ):
        worker = fleet.start()
        site.wait(arrivals=1 + children)
        fleet.wait(lambda look: look.counts.done == 1, "the first page is done")
        if first == "the failures":
            fleet.suspend(worker)
            site.wait(status_500=children)
        fleet.give_up(worker)
        worker.signal(signal.SIGCONT)
        fleet.finish()
        assert fleet.items() == list(range(shape.pages))
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
