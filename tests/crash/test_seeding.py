"""The worker that brings the seeds dies in the middle of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.spiders import SeedsSpider

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("successor", ["one that was there", "one that comes"])
def test_seeds_begin_again_and_known_ones_are_recognised(
    successor: str, url: str | None, tmp_path: Path
) -> None:
    shape = Shape("tree", pages=120, failing=0.1, slow=0.1, delay=(0.02, 0.2))
    gate = tmp_path / "gate"
    settings = {"FLEET_WORKER_TIMEOUT": 2}
    with running(shape) as site:
        seeds = [site.url(f"/p/{n}") for n in range(shape.pages)]
        # Those at even places are not filtered: these two are asked for twice.
        seeds += [seeds[0], seeds[1], seeds[2], seeds[3]]
        expected = Counter(urlsplit(seed).path for seed in [*seeds[: shape.pages], seeds[0], seeds[2]])
        expected.update({f"/p/{n}": shape.fails for n in site.site.failing})
        with Fleet(tmp_path, SeedsSpider, url=url, seeds=seeds, gate=str(gate), settings=settings) as fleet:
            seeder = fleet.start()
            if successor == "one that was there":
                fleet.start()
            site.wait(pages=shape.pages // 4)
            assert fleet.snapshot().status == "seeding"
            seeder.kill()
            held = fleet.held_by(seeder)
            gate.touch()
            if successor == "one that comes":
                fleet.start()
            fleet.finish()
        arrivals = site.arrivals()
        assert not site.lost()
        assert not expected - arrivals
        assert not arrivals - expected - held
        # Less than all is right where a page that had failed was in hand: it needs no second try then.
        assert shape.pages + 2 <= fleet.snapshot().counts.accepted <= expected.total()
