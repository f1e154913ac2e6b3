"""A fleet on Redis: whole crawls beside scrapy-redis, near the server and far from it, and what it costs.

``python -m benchmarks.fleet [--quick | --short] [--pages 1200] [--rounds 3]``

The server is Valkey (or Redis) without persistence, on this machine; a proxy of ours makes it 1 or 5 ms
away (see ``benchmarks.proxy``). scrapy-redis runs in an environment of its own, with the same Scrapy, the
same spider and the same site. Every crawl is a fresh process on an emptied server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks import command, peer, standing
from benchmarks.crawl import LINKS, QUICK_PAGES
from benchmarks.fleet_report import PAIRS, SIDES, goals, noise, plots, tables  # noqa: F401 (a part has them)
from benchmarks.host import Host, programs, serving
from benchmarks.measure import run_worker, scratch
from benchmarks.proxy import Traffic, far
from scrapy_fleet.ops.site import RunningSite, Shape, running

ADDON = {"ADDONS": {"scrapy_fleet.Addon": 500}}
DELAYS = (0, 1, 5)
"""Milliseconds to the server and back."""

SHARE = {
    "fleet": {0: 1.0, 1: 1.0, 5: 1.0},
    "peer": {0: 1 / 4, 1: 1 / 10, 5: 1 / 30},
    "peer-stats": {0: 1 / 8, 1: 1 / 40, 5: 1 / 120},
}
"""Of the pages: a slow crawl takes fewer, since it goes at the same speed all the time."""
FEWEST = 20
FEWEST_FOR_TWO = 200
"""A crawl that is over before the second worker is there would be begun anew by it."""

SLOW = {"CONCURRENT_REQUESTS": 8}
"""With pages that take 0.1 s, a worker is not limited by its processor but by the site, as most are."""


class Way(NamedTuple):
    """How a crawl reaches the server."""

    delay: int
    port: int
    traffic: Callable[[], Traffic]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def way(host: Host, delay: int) -> Iterator[Way]:
    if delay == 0:
        yield Way(0, host.port, host.traffic)
    else:
        with far(host.port, delay / 1000) as proxy:
            yield Way(delay, proxy.port, proxy.traffic)


def settings_of(side: str, url: str) -> dict[str, Any]:
    if side == "fleet":
        return {**ADDON, "FLEET_URL": url}
    return {**peer.SETTINGS, "REDIS_URL": url, **(peer.SHARED_STATS if side == "peer-stats" else {})}


def one(host: Host, way: Way, side: str, pages: int, python: str | None = None) -> dict[str, Any]:
    """One crawl by one worker."""
    return crawled(host, way, side, Shape("links", pages=pages, links=LINKS), python=python)


def crawled(
    host: Host,
    way: Way,
    side: str,
    shape: Shape,
    workers: int = 1,
    more: dict[str, Any] | None = None,
    python: str | None = None,
) -> dict[str, Any]:
    """One crawl; ends the measurement if a page was not reached, since then nothing is comparable."""
    host.empty()
    with scratch() as folder, running(shape) as served, ThreadPoolExecutor(workers) as threads:
        job: dict[str, Any] = {
            "url": served.start_url,
            "settings": {**(more or {}), **settings_of(side, way.url)},
            "together": workers,
        }
        cpu, traffic = host.cpu(), way.traffic()
        options = [folder] if python is None else [folder, python]
        running_workers = [threads.submit(run_worker, job, *options) for _ in range(workers)]
        results = [worker.result() for worker in running_workers]
        cpu, traffic = host.cpu() - cpu, way.traffic().since(traffic)
        lost, visits, steady = served.lost(), served.visits(), steady_rate(served)
    repeats = visits.total() - len(visits) - (visits["/p/0"] == 2)
    if lost or repeats or {result["reason"] for result in results} != {"finished"}:
        reasons = ", ".join(repr(result["reason"]) for result in results)
        raise SystemExit(
            f"{SIDES[side]}, {workers} workers: {len(lost)} lost, {repeats} repeated, ended as {reasons}."
        )
    began = min(result["began"] for result in results)
    ended = max(result["began"] + result["seconds"] for result in results)
    pages = shape.pages
    return {
        "pages": pages,
        "pages_per_second": pages / (ended - began),
        "steady_pages_per_second": steady,
        "cpu_ms_per_page": 1000 * sum(result["cpu"] for result in results) / pages,
        "cpu_share": sum(result["cpu"] for result in results) / workers / (ended - began),
        "server_us_per_page": 1e6 * cpu / pages,
        "trips_per_page": traffic.trips / pages,
        "bytes_per_page": (traffic.to_server + traffic.to_client) / pages,
        "commits": results[0]["commits"],
    }


def steady_rate(site: RunningSite) -> float:
    """Pages a second in the middle of a crawl, when neither its beginning nor its end limits it."""
    times = [line.time for line in site.log() if line.event == "done" and line.path.startswith("/p/")]
    first, last = len(times) // 5, len(times) * 4 // 5
    return (last - first) / (times[last] - times[first])


def crawls(
    host: Host, sides: list[str], pages: int, rounds: int, python: str | None, delays: Sequence[int] = DELAYS
) -> dict[str, Any]:
    """By delay and side, the crawls of all rounds."""
    runs: dict[str, Any] = {str(delay): {side: [] for side in sides} for delay in delays}
    if pages > QUICK_PAGES:  # what is read from disk the first time
        one(host, Way(0, host.port, host.traffic), "fleet", QUICK_PAGES)
    for number in range(rounds):
        for delay in delays:
            order = sides[number % len(sides) :] + sides[: number % len(sides)]
            with way(host, delay) as there:
                for side in order:
                    size = max(FEWEST, round(pages * SHARE[side][delay]))
                    result = one(host, there, side, size, None if side == "fleet" else python)
                    runs[str(delay)][side].append(result)
                    _tell(f"round {number + 1} {delay} ms {side:10}", result)
    return runs


def pairs(host: Host, pages: int, rounds: int, chosen: Sequence[str] = tuple(PAIRS)) -> dict[str, Any]:
    """Two workers against one: limited by the site (slow pages), and by this machine's processors."""
    kinds: dict[str, tuple[Shape, dict[str, Any]]] = {
        "slow": (Shape("links", pages=pages, links=LINKS, hosts=4, slow=1.0, delay=(0.1, 0.1)), SLOW),
        "fast": (Shape("links", pages=pages, links=LINKS, hosts=4), {}),
    }
    there = Way(0, host.port, host.traffic)
    found: dict[str, Any] = {kind: {"1": [], "2": []} for kind in chosen}
    for _ in range(rounds):
        for kind in chosen:
            shape, more = kinds[kind]
            for workers in (1, 2):
                result = crawled(host, there, "fleet", shape, workers, more)
                found[kind][str(workers)].append(result)
                _tell(f"workers: {workers}, {kind} pages", result)
    return found


def _tell(what: str, result: dict[str, Any]) -> None:
    print(
        f"{what:24} {result['pages_per_second']:7.1f} pages/s, {result['cpu_ms_per_page']:6.2f} ms CPU, "
        f"server {result['server_us_per_page']:5.0f} us, {result['trips_per_page']:6.2f} round trips, "
        f"{result['bytes_per_page']:6.0f} bytes a page",
        flush=True,
    )


def measure(
    pages: int,
    rounds: int,
    *,
    beside: bool = True,
    server: str | None = None,
    delays: Sequence[int] = DELAYS,
    pair_rounds: int = 2,
    pair_kinds: Sequence[str] = tuple(PAIRS),
    records: int = 100_000,
    idlers: int = 200,
    idle_seconds: float = 6.0,
    timeout: float = 3.0,
) -> dict[str, Any]:
    """Everything; ``beside=False`` leaves scrapy-redis out, ``server`` is a program to run as the server."""
    results: dict[str, Any] = {"pages": pages, "rounds": rounds}
    python = peer.look(results, wanted=beside)
    sides = ["fleet", "peer", "peer-stats"] if python else ["fleet"]
    results["records"], results["memory"] = records, {}
    for program in [server] if server else programs():
        with serving(program) as host:
            found = results["memory"][host.name] = {"fleet": standing.memory(host, records)}
            if python:
                found["peer"] = peer.memory(python, host.port, records)
            print(f"measured memory on {host.name}", flush=True)
    with serving(server) as host:
        results["server"] = host.name
        results["idle"] = standing.idle(host, idlers, idle_seconds)
        results["takeover"] = standing.takeover(host, timeout)
        print("measured idle workers and a takeover", flush=True)
        results["runs"] = crawls(host, sides, pages, rounds, python, delays)
        results["pairs"] = pairs(host, max(FEWEST_FOR_TWO, pages // 2), pair_rounds, pair_kinds)
    return results


QUICK: dict[str, Any] = {
    "pages": 30,
    "rounds": 1,
    "delays": (0, 5),
    "pair_rounds": 1,
    "pair_kinds": ("slow",),
    "records": 2000,
    "idlers": 2,
    "idle_seconds": 1.0,
    "timeout": 1.0,
}
SHORT: dict[str, Any] = {"pages": 600, "rounds": 2, "pair_rounds": 1, "records": 50_000, "idle_seconds": 5.0}
FULL: dict[str, Any] = {"pages": 2400, "rounds": 3}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("fleet", "Measure a fleet on Redis.")
    parser.add_argument("--pages", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--server", metavar="PROGRAM", help="instead of Valkey, as in: redis-server")
    parser.add_argument("--alone", action="store_true", help="without scrapy-redis")
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    options |= {name: getattr(args, name) for name in ("pages", "rounds", "server") if getattr(args, name)}
    if args.alone:
        options["beside"] = False
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
