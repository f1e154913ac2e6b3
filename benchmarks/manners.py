"""What politeness costs: ``python -m benchmarks.manners [--quick | --short] [--json FILE]``.

- A host that is limited to 8 requests at a time, with pages of 50 ms: how much of stock's rate is kept.
- A broad crawl, many hosts with a delay each, two workers: how much of the permitted rate is kept.
- The cost of a lease while many hosts must wait.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks import command
from benchmarks.crawl import ADDON
from benchmarks.fleet import Way, steady_rate, way
from benchmarks.host import serving
from benchmarks.measure import Goal, Spread, run_worker, scratch, table
from scrapy_fleet.model import Batch, Entry, Lease, Outcome, Plan, Rule
from scrapy_fleet.ops.site import RunningSite, Shape, running
from scrapy_fleet.process import this_worker
from scrapy_fleet.settings import open_store

LIMIT = 8
LIMITED = Shape("flat", links=20, slow=1.0, delay=(0.05, 0.05))
LIMITED_SETTINGS = {"CONCURRENT_REQUESTS_PER_DOMAIN": LIMIT}
KEPT = 0.93
"""Of stock Scrapy's rate, on a host that is limited."""
STOCK = "Scrapy, in memory"
STOCK_FREE = "Scrapy, in memory, CONCURRENT_REQUESTS = 64"
"""It does not keep CONCURRENT_REQUESTS_PER_DOMAIN where CONCURRENT_REQUESTS allows more (2.19)."""
BROAD = 0.9
"""Of the permitted rate, in a broad crawl."""
FLAT = 1.5
"""How much more a lease may cost with the most hosts waiting than with the fewest."""
LEASES = 64

QUICK: dict[str, Any] = {
    "pages": 60,
    "rounds": 1,
    "hosts": 20,
    "broad_pages": 60,
    "delays": (0.2,),
    "waiting_hosts": (10, 100),
    "crowds": (1,),
    "broad_workers": 1,
}
SHORT: dict[str, Any] = {
    "pages": 400,
    "rounds": 1,
    "hosts": 1000,
    "broad_pages": 8000,
    "delays": (1.0,),
    "waiting_hosts": (100, 10_000),
}
FULL: dict[str, Any] = {
    "pages": 800,
    "rounds": 3,
    "hosts": 1000,
    "broad_pages": 16_000,
    "broad_rounds": 5,
    "delays": (2.0, 1.0),
    "waiting_hosts": (100, 10_000, 100_000),
}


class Seen(NamedTuple):
    """What the site saw of a crawl."""

    rate: float
    """Pages a second, in the middle of it."""
    peak: int
    """The most requests it had in hand at a time."""


def crawled(shape: Shape, settings: dict[str, Any], workers: int = 1) -> Seen:
    with scratch() as folder, running(shape) as site, ThreadPoolExecutor(workers) as threads:
        filled = {k: v.format(folder=folder) if isinstance(v, str) else v for k, v in settings.items()}
        job = {"url": site.start_url, "settings": filled, "together": workers}
        done = [threads.submit(run_worker, job, folder) for _ in range(workers)]
        reasons = {each.result()["reason"] for each in done}
        if (lost := site.lost()) or reasons != {"finished"}:
            raise SystemExit(f"{len(lost)} pages lost, ended as {reasons}: {settings}")
        return Seen(steady_rate(site), peak(site))


def peak(site: RunningSite) -> int:
    changes = (1 if line.event == "arrive" else -1 for line in site.log())
    return max(itertools.accumulate(changes))


@contextmanager
def stores() -> Iterator[dict[str, dict[str, Any]]]:
    """The fleet's settings by where the crawl is stored."""
    with serving() as host, way(host, 1) as far:
        host.empty()
        yield {
            "SQLite": {**ADDON, "FLEET_URL": "sqlite://{folder}/fleet"},
            f"{host.name}, 1 ms away": {**ADDON, "FLEET_URL": far.url},
        }


def limited(pages: int, rounds: int, crowds: Sequence[int] = (1, 3)) -> dict[str, list[Seen]]:
    """By who crawls."""
    shape = replace(LIMITED, pages=pages)
    found: dict[str, list[Seen]] = {}
    for _ in range(rounds):
        with stores() as places:
            sides: list[tuple[str, dict[str, Any], int]] = [
                (STOCK, {"CONCURRENT_REQUESTS": LIMIT}, 1),
                (STOCK_FREE, {}, 1),
            ]
            for (name, place), workers in itertools.product(places.items(), crowds):
                title = f"scrapy-fleet, {name}, {workers} worker{'s' * (workers > 1)}"
                sides.append((title, {**place, "FLEET_CRAWL": f"limited-{workers}"}, workers))
            for title, settings, workers in sides:
                result = crawled(shape, {**LIMITED_SETTINGS, **settings}, workers)
                found.setdefault(title, []).append(result)
                print(f"{title:58} {result.rate:7.1f} pages/s, {result.peak} at a time", flush=True)
    return found


def broad(
    hosts: int, pages: int, delays: Sequence[float], rounds: int, workers: int = 2
) -> list[dict[str, Any]]:
    """Workers on many hosts: the rates with a delay, beside what the delay permits and what this machine
    reaches without."""
    shape = Shape("flat", pages=pages, links=20, hosts=hosts)
    found: dict[tuple[str, float], list[float]] = {}
    for _ in range(rounds):
        with stores() as places:
            for (name, place), delay in itertools.product(places.items(), (0.0, *delays)):
                settings = {
                    **place,
                    "FLEET_CRAWL": f"broad-{delay:g}",
                    "DOWNLOAD_DELAY": delay,
                    "DOWNLOAD_DELAY_JITTER": 0,
                    "CONCURRENT_REQUESTS": 200,
                }
                rate = crawled(shape, settings, workers).rate
                found.setdefault((name, delay), []).append(rate)
                print(f"{hosts} hosts, delay {delay:g} s, {name}: {rate:.1f} pages/s", flush=True)
    return [
        {"store": name, "delay": delay, "rates": rates, "hosts": hosts}
        for (name, delay), rates in found.items()
    ]


def waiting(numbers: Sequence[int], rounds: int = 300) -> dict[str, dict[str, float]]:
    """Microseconds a lease (with its settle), by store and by how many hosts wait for their time: medians of
    many commits, to one crawl after the other."""
    found: dict[str, dict[str, float]] = {}
    with serving() as host, scratch() as folder:
        places = {"SQLite": f"sqlite://{folder}", host.name: Way(0, host.port, host.traffic).url}
        for name, url in places.items():
            crawls = {number: Waiting(url, number) for number in numbers}
            times: dict[int, list[float]] = {number: [] for number in numbers}
            for _, number in itertools.product(range(rounds), numbers):
                times[number].append(crawls[number].lease())
            found[name] = {}
            for number in numbers:
                found[name][str(number)] = 1e6 * statistics.median(times[number]) / LEASES
                print(f"{number:7} hosts wait, {name}: {found[name][str(number)]:.0f} us a lease", flush=True)
                crawls[number].close()
    return found


class Waiting:
    """A crawl with one host that need not wait, beside others that must."""

    def __init__(self, url: str, hosts: int) -> None:
        self._store = open_store(url, f"waiting-{hosts}", durability="normal")
        self._worker = this_worker()
        plan = Plan(rule=Rule(delay=1e6), slots={"free": Rule(concurrency=10_000)})
        self._store.join(self._worker, plan, 600)
        self._numbers = itertools.count()
        for first in range(0, hosts, 250):
            some = range(first, min(first + 250, hosts))
            self._commit(adds=tuple(_entry(f"h{n}") for n in some for _ in range(2)))
            self._settle(self._commit(want=len(some)))
        self._commit(adds=tuple(_entry("free") for _ in range(2 * LEASES)))
        self._leases = self._commit(want=LEASES)

    def lease(self) -> float:
        """The seconds of a commit that settles some leases, adds as many entries and leases others."""
        began = time.perf_counter()
        adds = tuple(_entry("free") for _ in range(LEASES))
        self._leases = self._settle(self._leases, adds=adds, want=LEASES)
        assert len(self._leases) == LEASES
        return time.perf_counter() - began

    def close(self) -> None:
        self._store.close()

    def _settle(self, leases: tuple[Lease, ...], **parts: Any) -> tuple[Lease, ...]:
        return self._commit(outcomes=tuple(Outcome(lease.token) for lease in leases), **parts)

    def _commit(self, **parts: Any) -> tuple[Lease, ...]:
        return self._store.commit(Batch(worker=self._worker.id, seq=next(self._numbers), **parts)).leases


def _entry(slot: str) -> Entry:
    return Entry(slot=slot, payload=b"x" * 60)


def measure(
    pages: int,
    rounds: int,
    hosts: int,
    broad_pages: int,
    delays: Sequence[float],
    waiting_hosts: Sequence[int],
    crowds: Sequence[int] = (1, 3),
    broad_workers: int = 2,
    broad_rounds: int = 1,
) -> dict[str, Any]:
    return {
        "limited": limited(pages, rounds, crowds),
        "broad": broad(hosts, broad_pages, delays, broad_rounds, broad_workers),
        "waiting": waiting(waiting_hosts),
    }


def tables(results: dict[str, Any]) -> str:
    limited_rows = [
        [title, _rates(runs).show(1), f"{_share(results, title):.0%}", str(max(run[1] for run in runs))]
        for title, runs in results["limited"].items()
    ]
    broad_rows = [
        [
            row["store"],
            f"{row['delay']:g} s",
            _permitted(row),
            Spread.of(row["rates"]).show(0),
            f"{_kept(results, row):.0%}",
        ]
        for row in results["broad"]
    ]
    numbers = list(next(iter(results["waiting"].values())))
    waiting_rows = [
        [name, *(f"{costs[number]:.0f}" for number in numbers)] for name, costs in results["waiting"].items()
    ]
    limited_head = f"One host, {LIMIT} at a time, pages of 50 ms"
    broad_head = f"{results['broad'][0]['hosts']:,} hosts, two workers"
    waiting_head = "µs a lease, while so many hosts wait"
    return "\n\n".join(
        [
            table([limited_head, "pages/s", "of stock", "most at a time"], limited_rows),
            table([broad_head, "delay", "permitted", "pages/s", "kept"], broad_rows),
            table([waiting_head, *(f"{int(number):,}" for number in numbers)], waiting_rows),
        ]
    )


def _rates(runs: list[Any]) -> Spread:
    return Spread.of(run[0] for run in runs)


def _share(results: dict[str, Any], title: str) -> float:
    """Of the rate that stock Scrapy has within the same limit."""
    found: dict[str, Any] = results["limited"]
    return _rates(found[title]).median / _rates(found[STOCK]).median


def _permitted(row: dict[str, Any]) -> str:
    return f"{row['hosts'] / row['delay']:.0f}" if row["delay"] else "any"


def _kept(results: dict[str, Any], row: dict[str, Any]) -> float:
    """Of what the delay permits, or of what this machine reaches without one, if that is less: in the same
    round, since its speed varies from one to the next. The middle one of all rounds."""
    free = next(r for r in results["broad"] if r["store"] == row["store"] and not r["delay"])
    permitted = row["hosts"] / row["delay"] if row["delay"] else math.inf
    rounds = zip(row["rates"], free["rates"], strict=True)
    shares: list[float] = [rate / min(most, permitted) for rate, most in rounds]
    return statistics.median(shares)


def goals(results: dict[str, Any]) -> list[Goal]:
    found = [
        Goal(f"{title}, of stock's rate", _share(results, title), KEPT, form="{:.0%}")
        for title in results["limited"]
        if title not in (STOCK, STOCK_FREE)
    ]
    for row in results["broad"]:
        if row["delay"]:
            what = f"{row['hosts']:,} hosts, delay {row['delay']:g} s, {row['store']}, of the permitted rate"
            found.append(Goal(what, _kept(results, row), BROAD, form="{:.0%}"))
    for name, costs in results["waiting"].items():
        growth = max(costs.values()) / next(iter(costs.values()))
        found.append(Goal(f"a lease beside many hosts, {name}", growth, FLAT, at_most=True))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    return [
        f"{title}: {_rates(runs).show(1)} pages/s"
        for title, runs in results["limited"].items()
        if _rates(runs).noisy
    ]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    limited = [(title, _rates(runs).median) for title, runs in results["limited"].items()]
    waiting = {
        name: [(float(hosts), cost) for hosts, cost in costs.items()]
        for name, costs in results["waiting"].items()
    }
    return {
        "manners.svg": plot.bars(
            f"One host, {LIMIT} at a time, pages of 50 ms",
            limited,
            unit="pages/s",
            best="8 at a time is the limit of the site",
        ),
        "manners-waiting.svg": plot.lines(
            "A lease, while many hosts wait", waiting, x="hosts that wait", y="us a lease", log_x=True
        ),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("manners", "Measure politeness.")
    parser.add_argument("--part", choices=["limited", "broad", "waiting"], help="only this")
    args = parser.parse_args(arguments)
    given = command.size_of(args, QUICK, SHORT, FULL)
    if args.part == "limited":
        limited(given["pages"], given["rounds"])
    elif args.part == "broad":
        broad(given["hosts"], given["broad_pages"], given["delays"], given.get("broad_rounds", 1))
    elif args.part == "waiting":
        waiting(given["waiting_hosts"])
    else:
        results = measure(**given)
        command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
