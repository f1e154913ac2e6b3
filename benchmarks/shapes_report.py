"""Tables, goals and pictures of ``benchmarks.shapes``."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.crawl import VARIANTS
from benchmarks.measure import Goal, Spread, table

BASE = "memory"
STEP = 1.3
"""How many times as long as in stock Scrapy, in memory, a step of a chain may take on SQLite."""
FAR_STEP = 4.0
"""How many milliseconds longer than there, on a server 1 ms away."""


def title_of(results: dict[str, Any], side: str) -> str:
    if side in VARIANTS:
        return VARIANTS[side].title
    return f"scrapy-fleet, {results['server']}{', 1 ms away' * (side == 'far')}"


def median(results: dict[str, Any], side: str, what: str) -> float:
    return float(statistics.median(run[what] for run in results["steps"][side]))


def beyond(results: dict[str, Any], side: str, base: str = BASE) -> float:
    """Milliseconds a step beyond those of another side, in the same round."""
    pairs = zip(results["steps"][side], results["steps"][base], strict=True)
    return float(statistics.median(one["ms"] - other["ms"] for one, other in pairs))


def tables(results: dict[str, Any]) -> str:
    steps = [
        [
            title_of(results, side),
            Spread.of(run["ms"] for run in runs).show(2),
            f"{beyond(results, side):+.2f}" if side != BASE else "",
            f"{median(results, side, 'slow_ms'):.2f}",
            f"{median(results, side, 'cpu_ms'):.2f}",
            f"{median(results, side, 'commits'):.2f}" if "fleet" in title_of(results, side) else "",
        ]
        for side, runs in results["steps"].items()
    ]
    crawls = [
        [
            f"{row['site']}, {row['order']}",
            title_of(results, row["store"]),
            f"{row['workers']}",
            f"{row['pages']:,}",
            f"{row['rate']:.1f}",
            f"{row['most_waiting']:,}",
        ]
        for row in results["crawls"]
    ]
    number, rounds = results["number_of_steps"], results["rounds"]
    step_head = ["a step of a chain", "ms", "to in memory", "ms, slowest 5 %", "CPU ms", "commits"]
    crawl_head = ["pages of 50 ms, 8 at a time", "", "workers", "pages", "pages/s", "most waiting"]
    return (
        f"One request at a time, pages that take no time; {number:,} steps, medians of {rounds} (lowest to "
        f"highest):\n\n{table(step_head, steps)}\n\n"
        f"By shape of the site, order and workers, one crawl each:\n\n{table(crawl_head, crawls)}"
    )


def goals(results: dict[str, Any]) -> list[Goal]:
    steps, found = results["steps"], []
    if "fleet" in steps:
        pairs = zip(steps["fleet"], steps[BASE], strict=True)
        ratio = statistics.median(one["ms"] / other["ms"] for one, other in pairs)
        found.append(Goal("a step of a chain, SQLite against Scrapy, in memory", ratio, STEP, at_most=True))
    if "far" in steps:
        told = "a step of a chain on a server 1 ms away, beyond Scrapy's, in memory"
        found.append(Goal(told, beyond(results, "far"), FAR_STEP, at_most=True, form="{:.1f} ms"))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    found = {side: Spread.of(run["ms"] for run in runs) for side, runs in results["steps"].items()}
    return [
        f"a step of a chain, {title_of(results, side)}: {spread.show(2)} ms"
        for side, spread in found.items()
        if spread.noisy
    ]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks.plot import bars, groups, lines

    steps = [(title_of(results, side), median(results, side, "ms")) for side in results["steps"]]
    pictures = {"shapes-steps.svg": bars("A step of a chain", steps, unit="ms", best="lower")}
    rates: dict[str, dict[str, float]] = {}
    for row in results["crawls"]:
        if row["store"] == "fleet":
            side = f"{row['workers']} worker{'s' * (row['workers'] > 1)}"
            rates.setdefault(f"{row['site']}, {row['order']}", {})[side] = row["rate"]
    note = "Pages take 50 ms, and a worker fetches 8 at a time."
    pictures["shapes-speed.svg"] = groups(
        "Chain or tree: pages a second, SQLite", rates, unit="pages/s", note=note
    )
    for site in ("a tree", "listings"):
        curves = {
            f"{'Scrapy' if row['store'] == BASE else 'scrapy-fleet'}, {row['order']}": row["curve"]
            for row in results["crawls"]
            if row["site"] == site and row["workers"] == 1 and row["store"] in (BASE, "fleet")
        }
        name = site.split()[-1]
        for column, what, y in ((1, "waiting", "pages that wait"), (2, "depth", "depth of the pages")):
            pictures[f"shapes-{what}-{name}.svg"] = lines(
                f"{site.capitalize()}: {y}, by order",
                {order: [(point[0], point[column]) for point in curve] for order, curve in curves.items()},
                x="pages asked for",
                note="Pages take 50 ms; one worker fetches 8 at a time.",
            )
    return pictures
