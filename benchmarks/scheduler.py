"""The scheduler alone: what a new request costs, a known one, and the next one.

``python -m benchmarks.scheduler [--quick | --short] [--rounds 5] [--alone]``

Real schedulers in real crawls that download nothing (see ``benchmarks.scheduler_worker``): 64 requests are
always in hand, and each that ends brings one that is new, or that and 19 known ones. Stock Scrapy,
scrapy-fleet on SQLite and on Redis or Valkey, near and 1 ms away, and scrapy-redis there, in its own
environment. Every measurement is a fresh process on an emptied server; the rounds are interleaved.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks import command, crawl, peer
from benchmarks.fleet import ADDON, Way, way
from benchmarks.host import Host, serving
from benchmarks.measure import Goal, Spread, run_worker, scratch, table

DELAYS = (0, 1)
"""Milliseconds to the server and back."""
FASTER = {0: 10, 1: 60}
"""How many times less than with scrapy-redis a new request is to take."""


class Side(NamedTuple):
    title: str
    share: float
    """Of the requests: a slow scheduler takes fewer, since it goes at the same speed all the time."""
    delay: int | None = None
    """Milliseconds to its server."""


SIDES = {
    "memory": Side("Scrapy, in memory", 1.0),
    "jobdir": Side("Scrapy, JOBDIR", 1.0),
    "jobdir-sqlite": Side("Scrapy, JOBDIR on SQLite queues", 1 / 20),
    "fleet": Side("scrapy-fleet, SQLite", 1.0),
    "fleet-0": Side("scrapy-fleet, Redis, 0 ms away", 1.0, 0),
    "peer-0": Side("scrapy-redis, 0 ms away", 1 / 6, 0),
    "fleet-1": Side("scrapy-fleet, Redis, 1 ms away", 1.0, 1),
    "peer-1": Side("scrapy-redis, 1 ms away", 1 / 20, 1),
}
KINDS = {
    "new": "a new request",
    "around": "with its middlewares",
    "known": "a known one",
    "known_in_store": "known to the store only",
    "next": "next",
}
FEWEST = 40
FEWEST_WAITING = 300
FEWEST_PAGES = 10


def settings_of(side: str, folder: str, url: str | None) -> dict[str, Any]:
    if side.startswith("peer"):
        return {**peer.SETTINGS, "REDIS_URL": url}
    if url is not None:
        return {**ADDON, "FLEET_URL": url}
    return crawl.settings_of(side, folder)


def one(side: str, new: int, pages: int, repeats: int, url: str | None, python: str | None) -> dict[str, Any]:
    """One crawl; ends the measurement if it was not a whole one."""
    share = SIDES[side].share
    with scratch() as folder:
        job = {
            "settings": settings_of(side, folder, url),
            "fill": max(FEWEST_WAITING, round(new * share)),
            "new": max(FEWEST, round(new * share)),
            "pages": max(FEWEST_PAGES, round(pages * share)),
            "repeats": repeats,
        }
        found = run_worker(job, folder, python or sys.executable, "benchmarks.scheduler_worker")
    if found.pop("reason") != "finished" or "new" not in found:
        raise SystemExit(f"{SIDES[side].title}: the crawl did not finish.")
    return found


def measure(
    new: int, pages: int, rounds: int, repeats: int, *, beside: bool = True, server: str | None = None
) -> dict[str, Any]:
    """Everything; ``beside=False`` leaves scrapy-redis out, ``server`` is a program to run as the server."""
    results: dict[str, Any] = {"rounds": rounds}
    python = peer.look(results, wanted=beside)
    sides = [side for side in SIDES if python or not side.startswith("peer")]
    runs: dict[str, list[Any]] = {side: [] for side in sides}
    with ExitStack() as stack:
        host: Host = stack.enter_context(serving(server))
        ways: dict[int | None, Way] = {delay: stack.enter_context(way(host, delay)) for delay in DELAYS}
        for number in range(rounds):
            start = number % len(sides)
            for side in sides[start:] + sides[:start]:
                there = ways.get(SIDES[side].delay)
                host.empty()
                found = one(
                    side,
                    new,
                    pages,
                    repeats,
                    there and there.url,
                    python if side.startswith("peer") else None,
                )
                runs[side].append(found)
                print(f"round {number + 1} {SIDES[side].title:32} {_line(found)}", flush=True)
        results |= {"server": host.name, "runs": runs}
    return results


def _line(found: dict[str, Any]) -> str:
    def median(kind: str, name: str) -> float:
        return statistics.median([float(each[name]) for each in found[kind]])

    return ", ".join(
        f"{KINDS[kind]} {median(kind, 'us'):.1f} us ({median(kind, 'cpu_us'):.1f} CPU)" for kind in found
    )


def values(results: dict[str, Any], side: str, kind: str, name: str) -> list[float]:
    """All measurements of one thing."""
    return [float(each[name]) for found in results["runs"][side] for each in found.get(kind, ())]


def faster(results: dict[str, Any], delay: int, name: str = "us") -> float:
    """How many times as long a new request takes with scrapy-redis: the median of the rounds."""
    ours, theirs = (
        [statistics.median([float(each[name]) for each in found["new"]]) for found in results["runs"][side]]
        for side in (f"fleet-{delay}", f"peer-{delay}")
    )
    return statistics.median(their / our for our, their in zip(ours, theirs, strict=True))


def tables(results: dict[str, Any]) -> str:
    beside = (
        f"scrapy-redis {results['peer']}" if results["peer"] else f"no scrapy-redis: {results['no_peer']}"
    )
    measured = len(values(results, "fleet", "new", "us"))
    parts = [f"{results['server']}, {beside}; medians of {measured}:"]
    for title, name in (("us", "us"), ("us of CPU", "cpu_us")):
        rows = [
            [SIDES[side].title, *(_cell(values(results, side, kind, name)) for kind in KINDS)]
            for side in results["runs"]
        ]
        parts.append(table([title, *KINDS.values()], rows))
    if results["peer"]:
        rows = [
            [f"{delay} ms away", *(f"{faster(results, delay, name):.1f}x" for name in ("us", "cpu_us"))]
            for delay in DELAYS
        ]
        parts.append(table(["a new request, scrapy-redis to scrapy-fleet", "time", "CPU"], rows))
    return "\n\n".join(parts)


def _cell(found: list[float]) -> str:
    if not found:
        return ""
    median = max(0.0, statistics.median(found))  # a known request is a difference, and may be lost in noise
    return f"{median:,.0f}" if median >= 10 else f"{median:.1f}"


def goals(results: dict[str, Any]) -> list[Goal]:
    if not results["peer"]:
        return []
    return [
        Goal(
            f"scheduler alone, a new request, against scrapy-redis, {delay} ms away",
            faster(results, delay),
            FASTER[delay],
            form="{:.1f}x",
        )
        for delay in DELAYS
    ]


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    found = {
        f"{SIDES[side].title}, {KINDS[kind]}": Spread.of(values(results, side, kind, "us"))
        for side in results["runs"]
        for kind in ("new", "next")
    }
    return [f"{what}: {spread.show(unit=' us')}" for what, spread in found.items() if spread.noisy]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    rows = [
        (SIDES[side].title, statistics.median(values(results, side, "new", "us"))) for side in results["runs"]
    ]
    title = "The scheduler alone: a new request, until it is done"
    return {"scheduler.svg": plot.bars(title, rows, unit="us", best="lower", log=True)}


QUICK: dict[str, Any] = {"new": 100, "pages": 10, "rounds": 1, "repeats": 1, "beside": False}
SHORT: dict[str, Any] = {"new": 800, "pages": 60, "rounds": 2, "repeats": 2}
FULL: dict[str, Any] = {"new": 3000, "pages": 300, "rounds": 5, "repeats": 3}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("scheduler", "Measure schedulers alone.")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--server", metavar="PROGRAM", help="instead of Valkey, as in: redis-server")
    parser.add_argument("--alone", action="store_true", help="without scrapy-redis")
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    options |= {name: getattr(args, name) for name in ("rounds", "server") if getattr(args, name)}
    if args.alone:
        options["beside"] = False
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
