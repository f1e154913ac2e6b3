"""Where a page's time goes: ``python -m benchmarks.profile [--short] [--svg FILE] [--json FILE]``.

Whole crawls on each side, looked at while they run (see ``benchmarks.sampler``): how much CPU time of the
worker a page takes in scrapy-fleet, Scrapy, the HTTP client and the spider. For the functions behind that,
of one crawl: ``python -m benchmarks.profile --functions [--variant fleet] [--site links]``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import command, crawl, fleet, functions, peer
from benchmarks.host import Host, serving
from benchmarks.measure import Goal, Spread, run_worker, scratch, table
from benchmarks.sampler import HTTP, OTHER, SPIDER
from scrapy_fleet.ops.site import Shape, running

SIDES = {
    "memory": "Scrapy, in memory",
    "jobdir-sqlite": "Scrapy, JOBDIR on SQLite queues",
    "peer": "scrapy-redis",
    "fleet": "scrapy-fleet, SQLite",
    "fleet-redis": "scrapy-fleet, Redis",
}
ON_SERVER = {"peer": "peer", "fleet-redis": "fleet"}
"""The sides of ``benchmarks.fleet``."""
GROUPS = ("scrapy-fleet", "Scrapy", "scrapy-redis", HTTP, SPIDER, OTHER)

QUICK: dict[str, Any] = {"pages": 40, "rounds": 1, "sides": ["memory", "fleet"]}
SHORT: dict[str, Any] = {"pages": 500, "rounds": 1}
FULL: dict[str, Any] = {"pages": 1200, "rounds": 3}


def one(side: str, pages: int, host: Host | None, python: str | None) -> dict[str, Any]:
    """One crawl; ends the measurement if a page was not reached."""
    with scratch() as folder, running(Shape("links", pages=pages, links=crawl.LINKS)) as served:
        if side in ON_SERVER:
            assert host is not None
            host.empty()
            settings = fleet.settings_of(ON_SERVER[side], f"redis://127.0.0.1:{host.port}/0")
        else:
            settings = crawl.settings_of(side, folder)
        job = {"url": served.start_url, "settings": settings, "sampled": True}
        own = [python] if python and side == "peer" else []
        result = run_worker(job, folder, *own)
        lost = served.lost()
    if lost or result["reason"] != "finished":
        raise SystemExit(f"{SIDES[side]}: {len(lost)} pages lost, ended as {result['reason']!r}.")
    a_page = 1e6 / pages
    main = result["cpu"] - result["cpu_other_threads"]
    return {
        "us": {group: a_page * result["cpu_by_group"].get(group, 0.0) for group in GROUPS},
        "other_threads_us": a_page * result["cpu_other_threads"],
        "waited_us": a_page * max(0.0, result["seconds"] - main),
    }


def measure(pages: int, rounds: int, sides: list[str] | None = None) -> dict[str, Any]:
    results: dict[str, Any] = {"pages": pages, "rounds": rounds}
    chosen = sides or list(SIDES)
    python = peer.look(results, wanted="peer" in chosen)
    chosen = [side for side in chosen if python or side != "peer"]
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in chosen}
    with ExitStack() as stack:
        host = stack.enter_context(serving()) if ON_SERVER.keys() & runs else None
        for number in range(rounds):
            for side in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
                result = one(side, pages, host, python)
                runs[side].append(result)
                shown = ", ".join(f"{group} {us:.0f}" for group, us in result["us"].items() if us)
                print(f"round {number + 1} {side:14} us a page: {shown}", flush=True)
    return {**results, "runs": runs}


def total(run: dict[str, Any]) -> float:
    return float(sum(run["us"].values()))


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The round with the median: medians of the parts would not add up."""
    return sorted(runs, key=total)[len(runs) // 2]


def tables(results: dict[str, Any]) -> str:
    groups = [
        group for group in GROUPS if any(middle(runs)["us"][group] for runs in results["runs"].values())
    ]
    rows = []
    for side, runs in results["runs"].items():
        found = middle(runs)
        cells = [found["us"][group] for group in groups]
        cells += [total(found), found["other_threads_us"], found["waited_us"]]
        rows.append([SIDES[side], *(f"{each:,.0f}" for each in cells)])
    title = (
        f"CPU us a page, 20 links a page, 95 % of them known; {results['pages']:,} pages, the middle one of "
        f"{results['rounds']}; scrapy-redis {results['peer'] or 'is missing: ' + results['no_peer']}:"
    )
    return f"{title}\n\n{table(['', *groups, 'sum', 'in other threads', 'waited'], rows)}"


def goals(results: dict[str, Any]) -> list[Goal]:
    """It explains what others measure."""
    return []


def noise(results: dict[str, Any]) -> list[str]:
    found = {SIDES[side]: Spread.of(map(total, runs)) for side, runs in results["runs"].items()}
    return [f"{side}: {each.show()} us CPU a page" for side, each in found.items() if each.noisy]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks.plot import stacked

    rows = {
        SIDES[side]: {group: us / 1000 for group, us in middle(runs)["us"].items()}
        for side, runs in results["runs"].items()
    }
    note = (
        "Pages with 20 links, 95 % of them known; all threads of the worker. The spider's part is its "
        "callback with the selectors it reads and the requests it makes."
    )
    return {
        "profile.svg": stacked(
            "Where a page's time goes", rows, unit="ms of CPU a page, lower is better", note=note
        )
    }


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("profile", "See where the time goes.")
    parser.add_argument("--svg", type=Path, help="draw it into this file")
    functions.add_options(parser)
    args = parser.parse_args(arguments)
    if args.functions:
        functions.show(args)
        return
    results = measure(**command.size_of(args, QUICK, SHORT, FULL))
    command.tell(args, results, tables(results), goals(results), noise(results))
    if args.svg:
        args.svg.write_text(plots(results)["profile.svg"], encoding="utf-8")


if __name__ == "__main__":
    main()
