"""Whole crawls: the same spider on the same site, stock Scrapy against scrapy-fleet.

``python -m benchmarks.crawl [--quick | --short] [--pages 1200] [--rounds 5] [--only memory,fleet]``

Every crawl is a fresh process with a fresh folder and a fresh site, which runs in a process beside it
and says afterwards whether every page was reached. The rounds are interleaved, and each ratio is taken
within a round, so that what slows the machine down slows all sides down.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import command
from benchmarks.measure import Goal, Spread, run_worker, scratch, table
from scrapy_fleet.ops.site import Shape, running

ADDON = {"ADDONS": {"scrapy_fleet.Addon": 500}}
BASE = "memory"


Settings = dict[str, str]


class Variant(NamedTuple):
    title: str
    settings: dict[str, Any]
    """``{folder}`` in a value is where the crawl may write."""


VARIANTS = {
    "memory": Variant("Scrapy, in memory", {}),
    "jobdir": Variant("Scrapy, JOBDIR", {"JOBDIR": "{folder}/job"}),
    "jobdir-sqlite": Variant(
        "Scrapy, JOBDIR on SQLite queues",
        {
            "JOBDIR": "{folder}/job",
            "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoSQLiteQueue",
            "SCHEDULER_START_DISK_QUEUE": "scrapy.squeues.PickleFifoSQLiteQueue",
        },
    ),
    "ceiling": Variant(
        "Scrapy, in memory, known links dropped early",
        {"SPIDER_MIDDLEWARES": {"benchmarks.worker.DropKnown": 100_000}, "CONCURRENT_ITEMS": 4},
    ),
    "fleet": Variant("scrapy-fleet, SQLite", {**ADDON, "FLEET_URL": "sqlite://{folder}/fleet"}),
    "fleet-normal": Variant(
        "scrapy-fleet, SQLite, `normal`",
        {**ADDON, "FLEET_URL": "sqlite://{folder}/fleet", "FLEET_DURABILITY": "normal"},
    ),
    "fleet-memory": Variant("scrapy-fleet, `memory:`", {**ADDON, "FLEET_URL": "memory:"}),
}

LINKS = 20
QUICK_PAGES = 60
SITES = {
    "links": "20 links a page, 95 % of them known",
    "flat": "20 links on inner pages, none of them known",
    "large": "pages of 250 KB, 20 links on inner pages, none of them known",
}
SMALL = ("links", "flat")
SITES_OF = {
    "ceiling": ("links",),
    **dict.fromkeys(("jobdir", "jobdir-sqlite", "fleet-normal", "fleet-memory"), SMALL),
}
"""Variants that only mean something on some sites."""

GOALS = [
    ("links", "fleet", "memory", 2.0),
    ("links", "fleet", "jobdir-sqlite", 3.0),
    ("flat", "fleet", "memory", 0.95),
]


def settings_of(variant: str, folder: str) -> dict[str, Any]:
    return {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in VARIANTS[variant].settings.items()
    }


def shape_of(site: str, pages: int) -> Shape:
    if site == "large":
        return Shape("flat", pages=pages, links=LINKS, padding=250_000)
    return Shape(site, pages=pages, links=LINKS)  # type: ignore[arg-type]


def one(site: str, variant: str, pages: int, more: Settings | None = None) -> dict[str, Any]:
    """One crawl; ends the measurement if a page was not reached, since then nothing is comparable."""
    with scratch() as folder, running(shape_of(site, pages)) as served:
        settings = {**(more or {}), **settings_of(variant, folder)}
        result = run_worker({"url": served.start_url, "settings": settings}, folder)
        lost, visits = served.lost(), served.visits()
    # The start request is not filtered, so a link to the start page brings it a second time.
    repeats = visits.total() - len(visits) - (visits["/p/0"] == 2)
    if lost or repeats or result["reason"] != "finished" or result["items"] != visits.total():
        raise SystemExit(
            f"{VARIANTS[variant].title} on {site!r}: {len(lost)} pages lost, {repeats} repeated, "
            f"{result['items']} items of {visits.total()}, ended as {result['reason']!r}."
        )
    return {
        "pages_per_second": pages / result["seconds"],
        "cpu_ms_per_page": 1000 * result["cpu"] / pages,
        "cpu_share": result["cpu"] / result["seconds"],
        "store_thread_cpu_ms_per_page": 1000 * result["cpu_other_threads"] / pages,
        "memory_mb": result["memory"] / 1e6,
        "commits": result["commits"],
    }


def measure(
    pages: int,
    rounds: int,
    only: Sequence[str] = tuple(VARIANTS),
    sites: Sequence[str] = tuple(SITES),
    more: Settings | None = None,
) -> dict[str, Any]:
    """All crawls; ``more`` settings are for every side. The measurements of the rounds are under
    ``["runs"][site][variant]``.
    """
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {
        site: {v: [] for v in VARIANTS if v in only and site in SITES_OF.get(v, SITES)} for site in sites
    }
    if rounds > 1:
        one(sites[0], only[0], QUICK_PAGES)  # what is read from disk the first time
    for number in range(rounds):
        for site in sites:
            # Another order every round: nobody is always the first after a pause, or after the same one.
            order = list(runs[site])
            for variant in order[number % len(order) :] + order[: number % len(order)]:
                result = one(site, variant, pages, more)
                runs[site][variant].append(result)
                print(
                    f"round {number + 1} {site:6} {variant:14} {result['pages_per_second']:7.1f} pages/s "
                    f"{result['cpu_ms_per_page']:6.2f} ms CPU a page, busy {result['cpu_share']:4.0%}",
                    flush=True,
                )
    return {"pages": pages, "rounds": rounds, "settings": more or {}, "runs": runs}


def spread(results: dict[str, Any], site: str, variant: str, what: str) -> Spread:
    return Spread.of(run[what] for run in results["runs"][site][variant])


def ratio(results: dict[str, Any], site: str, variant: str, base: str, what: str) -> float | None:
    """How many times as much as the base, the median over the rounds; None if either was left out."""
    runs = results["runs"].get(site, {})
    if variant not in runs or base not in runs:
        return None
    pairs = zip(runs[variant], runs[base], strict=True)
    return float(statistics.median(one[what] / other[what] for one, other in pairs))


def tables(results: dict[str, Any]) -> str:
    return "\n\n".join(_table(results, site) for site in results["runs"])


def _table(results: dict[str, Any], site: str) -> str:
    headers = ["", "pages/s", "to in memory", "CPU ms a page", "to in memory", "busy", "memory, MB"]
    rows = []
    for variant in results["runs"][site]:
        speed = ratio(results, site, variant, BASE, "pages_per_second")
        cpu = ratio(results, site, variant, BASE, "cpu_ms_per_page")
        rows.append(
            [
                VARIANTS[variant].title,
                spread(results, site, variant, "pages_per_second").show(),
                "" if speed is None else f"{speed:.2f}x",
                spread(results, site, variant, "cpu_ms_per_page").show(2),
                "" if cpu is None else f"{cpu:.2f}x",
                f"{spread(results, site, variant, 'cpu_share').median:.0%}",
                f"{spread(results, site, variant, 'memory_mb').median:.0f}",
            ]
        )
    title = f"{SITES[site]}; {results['pages']:,} pages, medians of {results['rounds']} (lowest to highest):"
    return f"{title[0].upper()}{title[1:]}\n\n{table(headers, rows)}"


def goals(results: dict[str, Any]) -> list[Goal]:
    found = []
    for site, variant, base, bar in GOALS:
        value = ratio(results, site, variant, base, "pages_per_second")
        if value is not None:
            what = f"{VARIANTS[variant].title} against {VARIANTS[base].title}, site {site!r}"
            found.append(Goal(what, value, bar))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    return [
        f"{VARIANTS[variant].title} on {site!r}: {found.low:.0f} to {found.high:.0f} pages/s"
        for site, variants in results["runs"].items()
        for variant in variants
        if (found := spread(results, site, variant, "pages_per_second")).noisy
    ]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    return {
        f"crawl-{site}.svg": plot.bars(
            SITES[site][0].upper() + SITES[site][1:],
            [(VARIANTS[v].title, spread(results, site, v, "pages_per_second").median) for v in variants],
            unit="pages/s",
            best="higher",
        )
        for site, variants in results["runs"].items()
        if site in SMALL
    }


QUICK: dict[str, Any] = {
    "pages": 30,
    "rounds": 1,
    "only": ["memory", "jobdir-sqlite", "ceiling", "fleet"],
    "sites": ["links"],
}
SHORT: dict[str, Any] = {"pages": 500, "rounds": 2}
FULL: dict[str, Any] = {"pages": 1200, "rounds": 5}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("crawl", "Measure whole crawls.")
    parser.add_argument("--pages", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", help=f"some of {','.join(VARIANTS)}")
    parser.add_argument("--sites", help=f"some of {','.join(SITES)}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for every side"
    )
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    options |= {name: getattr(args, name) for name in ("pages", "rounds") if getattr(args, name)}
    for name, known in (("only", VARIANTS), ("sites", SITES)):
        if given := getattr(args, name):
            options[name] = _chosen(parser, f"--{name}", given, list(known))
    if any("=" not in pair for pair in args.set):
        parser.error("--set needs NAME=VALUE")
    results = measure(**options, more=dict(pair.split("=", 1) for pair in args.set))
    command.tell(args, results, tables(results), goals(results), noise(results))


def _chosen(parser: argparse.ArgumentParser, option: str, value: str, names: list[str]) -> list[str]:
    chosen = value.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"{option}: there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return chosen


if __name__ == "__main__":
    main()
