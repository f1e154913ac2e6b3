"""SIGKILL at random moments, on sites where a lost link shows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from scrapy_fleet.ops.site import running
from tests.crash.fleet import Fleet
from tests.crash.rounds import a_shape, arrivals_of_a_clean_crawl, kill_rounds
from tests.crash.spiders import SiteSpider

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["tree", "random"])
def test_kills_lose_nothing_and_repeat_little(
    kind: Literal["tree", "random"], seed: int, tmp_path: Path
) -> None:
    verdict = kill_rounds(tmp_path, a_shape(kind, seed), seed, rounds=5)
    assert not verdict.wrong, verdict
    assert verdict.kills >= verdict.rounds


def test_a_killed_worker_that_nobody_replaces_is_noticed_by_its_silence(tmp_path: Path) -> None:
    shape = a_shape("tree", seed=3, pages=150)
    settings = {"FLEET_WORKER_TIMEOUT": 2}
    with (
        running(shape) as site,
        Fleet(tmp_path, SiteSpider, start_url=site.start_url, settings=settings) as fleet,
    ):
        doomed = fleet.start()
        fleet.start()
        site.wait(pages=40)
        doomed.kill()
        held = fleet.held_by(doomed)
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(shape.pages))
