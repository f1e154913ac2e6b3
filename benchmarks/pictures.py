"""The pictures of the README, from what was measured: ``python -m benchmarks.pictures [RESULTS.json]``.

They are half as wide as those of ``docs/benchmarks.md``, and show less. A part that was not measured leaves
its picture as it is.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import kept
from benchmarks.measure import ROOT
from benchmarks.plot import bars, groups

FOLDER = ROOT / "docs" / "images" / "bench"
HALF = 430
OURS, PEER = "scrapy-fleet", "scrapy-redis"
Runs = list[dict[str, Any]]


def median(runs: Runs, what: str) -> float:
    return float(statistics.median(run[what] for run in runs))


def ratio(runs: Runs, base: Runs, what: str) -> float:
    """The median of the ratios within the rounds."""
    return float(statistics.median(one[what] / other[what] for one, other in zip(runs, base, strict=True)))


def named(sides: dict[str, Any], names: dict[str, str]) -> Iterable[tuple[str, Any]]:
    """The sides that were measured, by the names they have here."""
    return ((name, sides[side]) for side, name in names.items() if sides.get(side))


def loss(results: dict[str, Any]) -> str:
    sides = results["kills"]["tree"]
    share = {
        side: 100 * float(statistics.median(run["lost"] / run["pages"] for run in runs))
        for side, runs in sides.items()
    }
    ours = max(share[side] for side in ("fleet", "fleet-redis") if side in share)  # the worse of its stores
    names = {"peer": PEER, "jobdir-sqlite": "JOBDIR, SQLite", "jobdir": "JOBDIR"}
    rows = [(OURS, ours), *((name, share[side]) for side, name in names.items() if side in share)]
    killed = statistics.median(run["at"] / run["pages"] for run in sides["fleet"])
    note = f"{sides['fleet'][0]['pages']:,} pages, one link to each; killed after {killed:.0%}, restarted."
    best = f"lower is better; medians of {len(sides['fleet'])}"
    return bars("Pages lost by one kill -9", rows, unit="%", best=best, note=note, wide=HALF)


def speed(results: dict[str, Any]) -> str:
    names = {
        "fleet": OURS,
        "memory": "Scrapy, in memory",
        "jobdir": "JOBDIR",
        "jobdir-sqlite": "JOBDIR, SQLite",
    }
    sides = results["runs"]["links"]
    rows = [(name, median(runs, "pages_per_second")) for name, runs in named(sides, names)]
    times = ratio(sides["fleet"], sides["memory"], "pages_per_second")
    note = f"One worker, 20 links a page; {times:.1f} times Scrapy in memory."
    best = f"higher is better; medians of {len(sides['fleet'])}"
    return bars("Speed of a whole crawl", rows, unit="pages/s", best=best, note=note, wide=HALF)


def redis(results: dict[str, Any]) -> str:
    found = {
        f"server {delay} ms away" if int(delay) else "server on the same machine": {
            name: median(runs, "pages_per_second")
            for name, runs in named(sides, {"fleet": OURS, "peer": PEER})
        }
        for delay, sides in results["runs"].items()
    }
    note = f"One worker, {results['server']}."
    return groups(
        "Speed on Redis, near and far", found, unit="pages/s, higher is better", note=note, wide=HALF
    )


def memory(results: dict[str, Any]) -> str:
    [server, sides], *_ = results["memory"].items()
    records = {
        "waiting": "a waiting request",
        "waiting_referer": "a waiting request with a Referer",
        "seen": "a seen URL",
    }
    found = {
        title: {name: of[record] for name, of in named(sides, {"fleet": OURS, "peer": PEER})}
        for record, title in records.items()
    }
    note = f"{results['records']:,} of each, {server}."
    unit = "bytes on the server, lower is better"
    return groups("Memory of a crawl on Redis", found, unit=unit, note=note, wide=HALF)


MAKERS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "readme-loss.svg": ("loss", loss),
    "readme-speed.svg": ("crawl", speed),
    "readme-redis.svg": ("fleet", redis),
    "readme-memory.svg": ("fleet", memory),
}
"""File, part, and what draws it."""


def pictures(results: dict[str, Any]) -> dict[str, str]:
    """By file name, of the parts that there are."""
    return {file: draw(results[part]) for file, (part, draw) in MAKERS.items() if part in results}


def keep(results: dict[str, Any], folder: Path = FOLDER) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = pictures(results)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in made]


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    run = kept.read(Path(given[0])) if given else kept.newest()
    for made in keep(kept.figures(run)):
        print(made)


if __name__ == "__main__":
    main()
