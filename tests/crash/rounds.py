"""The kill test: crawl a site with workers that are killed again and again, and judge what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from scrapy_fleet.ops.site import RunningSite, Shape, Site, running
from tests.crash.fleet import Auditor, Fleet, adds_up
from tests.crash.spiders import SiteSpider
from tests.servers import RedisServer

WORKERS = 2
END = 2.0
"""Seconds within which every worker ends, once the last page is done."""


@dataclass
class Verdict:
    """What one crawl came to; ``wrong`` says in words what must not be."""

    rounds: int = 0
    kills: int = 0
    server_kills: int = 0
    pages: int = 0
    lost: int = 0
    repeated: int = 0
    bound: int = 0
    """How many requests the killed workers held, by the store, when they were dead."""
    wrong: list[str] = field(default_factory=list)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.rounds + other.rounds,
            self.kills + other.kills,
            self.server_kills + other.server_kills,
            self.pages + other.pages,
            self.lost + other.lost,
            self.repeated + other.repeated,
            self.bound + other.bound,
            self.wrong + other.wrong,
        )


def a_shape(kind: Literal["tree", "random"], seed: int, pages: int = 400) -> Shape:
    """A site with every kind of trouble."""
    return Shape(
        kind,
        pages=pages,
        links=6,
        seed=seed,
        redirects=0.15,
        missing=0.1,
        failing=0.1,
        slow=0.05,
        delay=(0.02, 0.3),
    )


def kill_rounds(
    folder: Path,
    shape: Shape,
    seed: int,
    rounds: int,
    *,
    server: RedisServer | None = None,
    workers: int = WORKERS,
    settings: dict[str, Any] | None = None,
) -> Verdict:
    """One crawl with this many rounds: in each, one worker or all are killed, and replaced.

    With a ``server`` the crawl is stored there, and in every other round it is killed, too.
    """
    verdict = Verdict(rounds=rounds, pages=shape.pages)
    random = Random(seed)
    held: Counter[str] = Counter()
    moments = sorted(random.sample(range(1, shape.pages, 5), rounds))
    url = server.url if server else None
    with (
        running(shape) as site,
        Fleet(folder, SiteSpider, url=url, start_url=site.start_url, settings=settings) as fleet,
    ):
        fleet.start()
        with Auditor(fleet) as auditor:
            # A worker that came when the crawl was finished would begin it anew.
            with fleet.held_open():
                for _ in range(workers - 1):
                    fleet.start()
                for number, pages in enumerate(moments):
                    site.wait(pages=pages)
                    hurt = server if number % 2 == 0 else None
                    held += _kill_some(fleet, random, verdict, hurt)
            let_go = time.monotonic()
            ends = fleet.finish()
        if auditor.wrong:
            verdict.wrong.append(f"counters that do not add up: {auditor.wrong[0]}")
        if not auditor.looks:
            verdict.wrong.append("nobody looked at the counters")
        _judge(fleet, site, held, verdict)
        verdict.wrong += judge_end(site, ends, let_go)
    return verdict


def _kill_some(fleet: Fleet, random: Random, verdict: Verdict, server: RedisServer | None) -> Counter[str]:
    """Kill one or all, and replace them; what they held. The server dies before them, or after."""
    victims = fleet.running()
    everybody = random.random() < 0.4
    if not everybody:
        victims = [random.choice(victims)]
    server_first = random.random() < 0.5
    if server and server_first:
        server.kill()
    for victim in victims:
        victim.kill()
    if server:
        server.kill()
        server.start()
        verdict.server_kills += 1
    held = fleet.held_by(*victims)
    verdict.kills += len(victims)
    verdict.bound += held.total()
    if everybody:
        _look_at_rest(fleet, verdict)
    for _ in victims:
        fleet.start()
    return held


def _look_at_rest(fleet: Fleet, verdict: Verdict) -> None:
    """Nobody is there who could change anything: the counters must be what can be counted."""
    counts = fleet.snapshot().counts
    waiting, leased, dead = len(fleet.scan("waiting")), len(fleet.scan("leased")), len(fleet.scan("dead"))
    if (counts.waiting, counts.leased, counts.dead) != (waiting, leased, dead) or not adds_up(counts):
        verdict.wrong.append(f"{counts}, but there are {waiting} waiting, {leased} leased, {dead} dead")


def judge_end(site: RunningSite, ends: list[float], not_before: float = 0.0) -> list[str]:
    """What is wrong with when the workers ended: never before the last page was done, and soon after."""
    last = max(line.time for line in site.log() if line.event in ("done", "left"))
    wrong = []
    if ends[0] < last:
        wrong.append(f"a worker ended {last - ends[0]:.2f} s before the last page was done")
    if ends[-1] > max(last, not_before) + END:
        wrong.append(f"a worker ended {ends[-1] - max(last, not_before):.2f} s after the last page was done")
    return wrong


def _judge(fleet: Fleet, site: RunningSite, held: Counter[str], verdict: Verdict) -> None:
    wrong = verdict.wrong
    arrivals, expected = site.arrivals(), arrivals_of_a_clean_crawl(site.site)
    lost = (expected - arrivals).keys() | site.lost()
    verdict.lost = len(lost)
    if lost:
        wrong.append(f"lost: {_some(lost)}")
    # Whatever was held is asked for once more at most: what it led to is stored with its end, or known.
    repeated = arrivals - expected
    verdict.repeated = repeated.total()
    if unheld := repeated - held:
        wrong.append(f"repeated, though no killed worker held it: {_some(unheld)}")
    snapshot = fleet.snapshot()
    if snapshot.run != 1:
        wrong.append(f"begun {snapshot.run} times")
    if snapshot.counts.done != snapshot.counts.accepted:
        wrong.append(f"left over: {snapshot.counts}; {[row.reason for row in fleet.scan('dead')]}")
    items, pages = Counter(fleet.items()), Counter(range(verdict.pages))
    if items != pages:
        wrong.append(f"items lost: {_some(pages - items)}, repeated: {_some(items - pages)}")


def _some(things: Iterable[object]) -> str:
    return ", ".join(map(str, sorted(things, key=str)[:10])) or "none"


def arrivals_of_a_clean_crawl(site: Site) -> Counter[str]:
    """How often each path is asked for when nothing is repeated."""
    expected = Counter(site.pages())
    expected.update({link for n in range(site.shape.pages) for link in site.links(n)} - site.pages())
    expected.update({f"/p/{n}": site.shape.fails for n in site.failing})
    return expected
