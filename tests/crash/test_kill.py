"""SIGKILL at random moments, on sites where a lost link shows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.rounds import a_shape, arrivals_of_a_clean_crawl, kill_rounds
from tests.crash.spiders import LingeringSpider, SiteSpider

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["tree", "random"])
def test_kills_lose_nothing_and_repeat_little(
    kind: Literal["tree", "random"], seed: int, tmp_path: Path
) -> None:
    verdict = kill_rounds(tmp_path, a_shape(kind, seed), seed, rounds=5)
    assert not verdict.wrong, verdict
    assert verdict.kills >= verdict.rounds


@pytest.mark.parametrize(("seen", "kind"), [("bloom", "random"), ("rolling", "random"), ("off", "tree")])
def test_kills_with_each_filter(seen: str, kind: Literal["tree", "random"], tmp_path: Path) -> None:
    """(How many a Bloom filter takes for known ones is counted elsewhere: here it is nearly empty.)"""
    shape = a_shape(kind, seed=5, pages=150)
    verdict = kill_rounds(tmp_path, shape, seed=5, rounds=2, settings={"FLEET_SEEN": seen})
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


def test_retries_are_stored_before_what_they_come_from_is_settled(tmp_path: Path) -> None:
    """Every page fails once, and callbacks linger: a retry taken for the child of one of them would wait
    for its end, while the request that failed is settled."""
    shape = Shape("tree", pages=60, links=6, seed=9, redirects=0.2, failing=1.0)
    gate = tmp_path / "gate"
    settings = {"FLEET_COMMIT_INTERVAL": 5}
    with (
        running(shape) as site,
        Fleet(
            tmp_path, LingeringSpider, start_url=site.start_url, settings=settings, gate=str(gate)
        ) as fleet,
    ):
        doomed = fleet.start()
        site.wait(status_500=20)
        doomed.kill()
        held = fleet.held_by(doomed)
        gate.touch()
        fleet.start()
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not site.lost()
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(shape.pages))
