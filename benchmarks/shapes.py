"""Chain or tree: how a site's shape, the order and the number of workers make a crawl fast or slow, and its
frontier small or large.

``python -m benchmarks.shapes [--short] [--quick] [--json FILE]``

- Steps: on a chain (next page, next page) one request is under way at a time. What a step takes, beside
  stock Scrapy, where pages take no time.
- Crawls: chains, a tree, and listings with their details, with pages of 50 ms and 8 requests at a time a
  worker, by order and number of workers. The site's log tells how many pages were known and not yet asked
  for, and how deep in the site a page was.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from scrapy.http import Response

from benchmarks import command
from benchmarks.crawl import VARIANTS, settings_of
from benchmarks.fleet import ADDON, way
from benchmarks.host import serving
from benchmarks.measure import run_worker, scratch
from benchmarks.shapes_report import goals, noise, plots, tables
from benchmarks.worker import LinksSpider
from scrapy_fleet.ops.site import LogLine, RunningSite, Shape, Site, running

STEP = Shape("chain", links=1)
LISTED = 20
SLOW: dict[str, Any] = {"slow": 1.0, "delay": (0.05, 0.05)}
SITES = {
    "a chain": Shape("chain", links=1, **SLOW),
    "16 chains": Shape("chain", links=16, **SLOW),
    "a tree": Shape("flat", links=3, **SLOW),
    "listings": Shape("listing", links=LISTED, **SLOW),
}
ORDERS: dict[str, dict[str, Any]] = {
    "newest first": {},
    "oldest first": {"FLEET_ORDER": "fifo"},
    "depth first": {"DEPTH_PRIORITY": -1},
    "details first": {},
}
"""The first is Scrapy's default. Which requests are details is said by the spider."""
SPIDERS = {"details first": "benchmarks.shapes.DetailsFirst"}
LIMITS = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 64}
POINTS = 24
"""How many points of a curve are kept."""

Plan = tuple[str, str, str, int]
"""Store, site, order, and number of workers."""


def on(store: str, plans: Iterable[tuple[str, str, int]]) -> list[Plan]:
    return [(store, *plan) for plan in plans]


FIRST = [
    ("a chain", "newest first", 1),
    ("a chain", "newest first", 3),
    ("16 chains", "newest first", 1),
    ("16 chains", "newest first", 3),
    ("a tree", "newest first", 1),
    ("a tree", "oldest first", 1),
    ("a tree", "newest first", 3),
    ("listings", "newest first", 1),
    ("listings", "oldest first", 1),
    ("listings", "details first", 1),
    ("listings", "details first", 3),
]
REST = [
    ("a tree", "oldest first", 3),
    ("a tree", "depth first", 1),
    ("listings", "newest first", 3),
    ("listings", "oldest first", 3),
]
STOCK = [(site, "newest first", 1) for site in SITES]
QUICK: dict[str, Any] = {
    "steps": 20,
    "rounds": 1,
    "sides": ["memory", "fleet"],
    "pages": 30,
    "chain_pages": 5,
    "plans": [("fleet", "listings", "details first", 1)],
}
SHORT: dict[str, Any] = {
    "steps": 200,
    "rounds": 1,
    "sides": ["memory", "fleet", "far"],
    "pages": 150,
    "chain_pages": 20,
    "plans": on("fleet", FIRST),
}
FULL: dict[str, Any] = {
    "steps": 400,
    "rounds": 5,
    "sides": ["memory", "jobdir-sqlite", "fleet-memory", "fleet", "server", "far"],
    "pages": 1093,  # a tree with all of its last level
    "chain_pages": 100,
    "plans": [*on("memory", STOCK), *on("fleet", [*FIRST, *REST]), *on("far", FIRST)],
}


class DetailsFirst(LinksSpider):
    """Details before the next listing: a site of the kind ``listing`` numbers its listings evenly."""

    def parse(self, response: Response) -> Iterator[Any]:
        for each in super().parse(response):
            if not isinstance(each, dict):
                each.priority = int(int(each.url.rpartition("/")[2]) % (LISTED + 1) > 0)
            yield each


class Places(NamedTuple):
    """Where crawls are stored: settings by name."""

    server: str
    settings: dict[str, dict[str, Any]]

    def of(self, name: str, folder: str, crawl: str) -> dict[str, Any]:
        if name in VARIANTS:
            return settings_of(name, folder)
        return {**self.settings[name], "FLEET_CRAWL": crawl}


def crawled(
    shape: Shape, settings: dict[str, Any], folder: str, workers: int = 1, spider: str | None = None
) -> tuple[RunningSite, list[LogLine], list[dict[str, Any]]]:
    """One crawl: the site, its log and what the workers said. It only counts if every page came once."""
    with running(shape) as site, ThreadPoolExecutor(workers) as threads:
        job: dict[str, Any] = {"url": site.start_url, "settings": settings, "together": workers}
        if spider:
            job["spider"] = spider
        results = [
            future.result() for future in [threads.submit(run_worker, job, folder) for _ in range(workers)]
        ]
        log = [line for line in site.log() if line.path.startswith("/p/")]
        lost, repeats = site.lost(), site.repeats()
    reasons = {result["reason"] for result in results}
    if lost or repeats or reasons != {"finished"}:
        raise SystemExit(
            f"{shape.kind}: {len(lost)} lost, {repeats} repeated, ended as {reasons}: {settings}"
        )
    return site, log, results


def step_times(
    places: Places, sides: list[str], number: int, rounds: int
) -> dict[str, list[dict[str, float]]]:
    """By side, what a step of a chain took in each round."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
            with scratch() as folder:
                settings = places.of(side, folder, f"steps-{turn}")
                _, log, [worker] = crawled(replace(STEP, pages=number), settings, folder)
            arrivals = [line.time for line in log if line.event == "arrive"]
            gaps = sorted(later - one for one, later in itertools.pairwise(arrivals))
            found[side].append(
                {
                    "ms": 1000 * statistics.median(gaps),
                    "slow_ms": 1000 * gaps[len(gaps) * 95 // 100],
                    "cpu_ms": 1000 * worker["cpu"] / number,
                    "commits": (worker["commits"] or 0) / number,
                }
            )
            newest = found[side][-1]
            print(
                f"round {turn + 1} step {side:14} {newest['ms']:6.2f} ms, {newest['slow_ms']:6.2f} ms at 95 %"
                f", CPU {newest['cpu_ms']:5.2f} ms, {newest['commits']:.2f} commits",
                flush=True,
            )
    return found


def crawls(places: Places, plans: list[Plan], pages: int, chain_pages: int) -> list[dict[str, Any]]:
    """A row for each crawl."""
    rows = []
    for number, (store, name, order, workers) in enumerate(plans):
        shape = replace(SITES[name], pages=chain_pages if name == "a chain" else pages)
        with scratch() as folder:
            settings = {**LIMITS, **ORDERS[order], **places.of(store, folder, f"shapes-{number}")}
            site, log, _ = crawled(shape, settings, folder, workers, SPIDERS.get(order))
        seconds = log[-1].time - log[0].time
        waiting, curve = frontier(site.site, log)
        row: dict[str, Any] = {
            "store": store,
            "site": name,
            "order": order,
            "workers": workers,
            "pages": shape.pages,
        }
        row |= {"rate": shape.pages / seconds, "most_waiting": waiting, "curve": curve}
        rows.append(row)
        print(
            f"{name}, {order}, {workers} worker{'s' * (workers > 1)}, {store}: {row['rate']:.1f} pages/s, "
            f"{waiting} waiting at most",
            flush=True,
        )
    return rows


def frontier(site: Site, log: Iterable[LogLine]) -> tuple[int, list[list[float]]]:
    """The most pages that were known and not asked for; and a curve: for pages asked for, how many those are,
    and the depth of the pages since the last point, and the seconds since the first."""
    depth, waiting, most = {0: 0}, 1, 1
    asked: list[tuple[int, int, float]] = []
    for line in log:
        n = int(line.path.rpartition("/")[2])
        if line.event == "arrive":
            waiting -= 1
            asked.append((waiting, depth[n], line.time))
        else:
            children = site.children(n)
            depth.update(dict.fromkeys(children, depth[n] + 1))
            waiting += len(children)
            most = max(most, waiting)
    curve = []
    step = max(1, -(-len(asked) // POINTS))
    for first in range(0, len(asked), step):
        some = asked[first : first + step]
        deep = statistics.fmean(each[1] for each in some)
        curve.append([first + len(some), max(each[0] for each in some), deep, some[-1][2] - asked[0][2]])
    return most, curve


def measure(
    steps: int,
    rounds: int,
    sides: list[str],
    pages: int,
    chain_pages: int,
    plans: list[Plan],
) -> dict[str, Any]:
    with ExitStack() as stack:
        name, settings = "", {}
        if {"server", "far"} & {*sides, *(plan[0] for plan in plans)}:
            host = stack.enter_context(serving())
            name = host.name
            for side, delay in (("server", 0), ("far", 1)):
                settings[side] = {**ADDON, "FLEET_URL": stack.enter_context(way(host, delay)).url}
        places = Places(name, settings)
        return {
            "server": name,
            "rounds": rounds,
            "number_of_steps": steps,
            "steps": step_times(places, sides, steps, rounds),
            "crawls": crawls(places, plans, pages, chain_pages),
        }


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("shapes", "Measure chains and trees.")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    if args.rounds:
        options["rounds"] = args.rounds
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


__all__ = ["FULL", "QUICK", "SHORT", "goals", "measure", "noise", "plots", "tables"]

if __name__ == "__main__":
    main()
