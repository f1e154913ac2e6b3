"""A worker that was given up still has requests under way when it comes back under a new name."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.spiders import GatedSpider, SiteSpider

pytestmark = pytest.mark.crash


def test_what_ends_late_does_not_settle_what_was_leased_since(tmp_path: Path) -> None:
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


def test_a_retry_of_what_was_lost_meanwhile_does_not_run_beside_it(tmp_path: Path) -> None:
    """The page fails slowly. While it does, its worker is given up; it runs again and gives its item.
    The failure comes then: to try again would give the item twice."""
    shape = Shape("flat", pages=2, links=1, failing=1.0, slow=1.0, delay=(2.5, 2.5))
    with (
        running(shape) as site,
        Fleet(tmp_path, SiteSpider, start_url=site.start_url, settings={"FLEET_WORKER_TIMEOUT": 2}) as fleet,
    ):
        worker = fleet.start()
        site.wait(arrivals=2)
        fleet.give_up(worker)
        fleet.finish()
        assert not site.lost()
        assert fleet.items() == [0, 1]
        assert site.arrivals()["/p/1"] == 2
