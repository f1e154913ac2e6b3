"""The store alone: how fast it is, and what a request costs as the frontier grows.

``python -m benchmarks.queue [--quick | --short] [--sizes 10000,100000,1000000] [--rounds 9]``

SQLite with ``FLEET_DURABILITY = "full"``, in batches as a busy worker makes them, against push and pop
on the SQLite queue of Scrapy. On both sides requests are turned into bytes and back within the measured
time. The files that were filled are then crawled for a while by real workers, to see their memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.squeues import PickleLifoSQLiteQueue

from benchmarks import command
from benchmarks.measure import Goal, Spread, run_worker, scratch, table
from benchmarks.worker import LinksSpider
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.model import Batch, Entry, Lease, Outcome, Plan, Rule, Sample
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.process import this_worker
from scrapy_fleet.settings import open_store

BATCH = 100
FILL = 500
GOAL_PER_SECOND = 10_000
GOAL_FLAT = 1.5
TTL = 600.0

SPIDER = LinksSpider(url="http://127.0.0.1/p/0")


class Flow:
    """A worker without Scrapy on a SQLite store: fills it, and then keeps requests flowing through it."""

    def __init__(self, path: Path, site: str, hosts: int = 1, order: str = "lifo") -> None:
        self.store = open_store(f"sqlite://{path}", LinksSpider.name, durability="full")
        self.hosts = [f"host{n}" for n in range(hosts)]
        self._codec = Codec(SPIDER)
        self._site = site
        self._numbers = count()
        self._keys = Random(0)
        self._seq = count()
        self._worker = this_worker()
        # Room for two batches, so that it is not politeness what is measured.
        rule = Rule(concurrency=max(1, 2 * BATCH // hosts))
        self.store.join(self._worker, Plan(rule=rule, lifo=order == "lifo"), TTL)

    def requests(self, n: int) -> list[Request]:
        return [
            Request(f"{self._site}/p/{next(self._numbers)}", callback=SPIDER.parse, meta={"depth": 3})
            for _ in range(n)
        ]

    def entries(self, requests: list[Request]) -> tuple[Entry, ...]:
        return tuple(
            Entry(
                slot=self.hosts[i % len(self.hosts)],
                payload=self._codec.encode(request),
                key=self._keys.getrandbits(64) - (1 << 63),
            )
            for i, request in enumerate(requests)
        )

    def commit(self, **parts: Any) -> tuple[Lease, ...]:
        receipt = self.store.commit(Batch(worker=self._worker.id, seq=next(self._seq), **parts))
        for lease in receipt.leases:
            self._codec.decode(lease.payload)
        return receipt.leases

    def fill(self, n: int) -> float:
        """Add requests, as a worker does that finds many; seconds."""
        seconds = 0.0
        for start in range(0, n, FILL):
            requests = self.requests(min(FILL, n - start))
            began = time.perf_counter()
            self.commit(adds=self.entries(requests))
            seconds += time.perf_counter() - began
        return seconds

    def run(self, n: int, *, adding: bool) -> float:
        """Lease and settle (and add as many), a batch at a time; seconds."""
        done = 0
        leases = self.commit(want=BATCH)
        seconds = 0.0
        while done < n:
            requests = self.requests(len(leases)) if adding else []
            began = time.perf_counter()
            done += len(leases)
            leases = self.commit(adds=self.entries(requests), want=BATCH, **settled(leases))
            seconds += time.perf_counter() - began
        self.commit(releases=tuple(lease.token for lease in leases))
        return seconds

    def leave(self) -> None:
        self.commit(seeded=True, leave=True)
        self.store.close()


def settled(leases: tuple[Lease, ...]) -> dict[str, Any]:
    return {
        "samples": tuple(Sample(lease.token, 0.05, 200) for lease in leases),
        "outcomes": tuple(Outcome(lease.token) for lease in leases),
    }


def scrapys_queue(folder: Path, n: int) -> tuple[float, float]:
    """Seconds to push, and to pop, as Scrapy's scheduler does with a JOBDIR."""
    crawler = Crawler(LinksSpider)
    crawler.spider = SPIDER
    queue: Any = PickleLifoSQLiteQueue.from_crawler(crawler, str(folder / "queue"))  # type: ignore[attr-defined]
    requests = [
        Request(f"http://127.0.0.1/p/{i}", callback=SPIDER.parse, meta={"depth": 3}) for i in range(n)
    ]
    began = time.perf_counter()
    for request in requests:
        queue.push(request)
    pushed = time.perf_counter()
    while queue.pop() is not None:
        pass
    popped = time.perf_counter()
    queue.close()
    return pushed - began, popped - pushed


def speed(rounds: int, n: int, few: int) -> dict[str, list[float]]:
    """Requests a second: each kind of work, a measurement a round."""
    kinds: dict[str, list[float]] = {
        name: [] for name in ("add", "lease_settle", "lease_settle_100_hosts", "scrapy_push", "scrapy_pop")
    }
    for _ in range(rounds):
        with scratch() as folder:
            for name, hosts in (("lease_settle", 1), ("lease_settle_100_hosts", 100)):
                flow = Flow(Path(folder, f"{hosts}.db"), "http://127.0.0.1", hosts)
                filling = flow.fill(n + BATCH)
                if hosts == 1:
                    kinds["add"].append((n + BATCH) / filling)
                kinds[name].append(n / flow.run(n, adding=False))
                flow.leave()
            push, pop = scrapys_queue(Path(folder), few)
            kinds["scrapy_push"].append(few / push)
            kinds["scrapy_pop"].append(few / pop)
    return kinds


def growth(sizes: list[int], rounds: int, n: int, pages: int) -> dict[str, Any]:
    """Microseconds for a request to come, be leased and be settled, by order and number of waiting ones;
    and the memory of a worker that crawls on."""
    costs: dict[str, dict[str, list[float]]] = {}
    memory: dict[str, float] = {}
    # A link on every page: what waits neither grows nor shrinks while the workers crawl.
    shape = Shape("flat", pages=max(sizes) + 2 * rounds * n + 10 * BATCH, links=1)
    with scratch() as folder, running(shape) as site:
        for order in ("lifo", "fifo"):
            flows = {
                size: Flow(Path(folder, f"{order}-{size}.db"), site.url("").rstrip("/"), order=order)
                for size in sizes
            }
            for size, flow in flows.items():
                seconds = flow.fill(size)
                print(f"filled {order} with {size:,}: {size / seconds:,.0f} a second", flush=True)
            costs[order] = {str(size): [] for size in sizes}
            for _ in range(rounds):
                for size, flow in flows.items():
                    costs[order][str(size)].append(1e6 * flow.run(n, adding=True) / n)
            for flow in flows.values():
                flow.leave()
        for size in sizes:
            memory[str(size)] = worker_memory(Path(folder, f"lifo-{size}.db"), site.start_url, pages)
    return {"us_a_request": costs, "worker_mb": memory}


def worker_memory(path: Path, start_url: str, pages: int) -> float:
    """The most memory, in MB, of a worker that goes on with a crawl and stops after some pages."""
    with scratch() as folder:
        settings = {
            "ADDONS": {"scrapy_fleet.Addon": 500},
            "FLEET_URL": f"sqlite://{path}",
            "CLOSESPIDER_PAGECOUNT": pages,
        }
        result = run_worker({"url": start_url, "settings": settings}, folder)
    if result["reason"] != "closespider_pagecount":
        raise SystemExit(f"The worker on {path.name} ended as {result['reason']!r}.")
    return float(result["memory"]) / 1e6


def flatness(costs: dict[str, list[float]]) -> float:
    """How many times the cheapest size's cost the dearest has."""
    medians = [statistics.median(values) for values in costs.values()]
    return max(medians) / min(medians)


TITLES = {
    "add": "scrapy-fleet: add",
    "lease_settle": "scrapy-fleet: lease and settle, 1 host",
    "lease_settle_100_hosts": "scrapy-fleet: lease and settle, 100 hosts",
    "scrapy_push": "Scrapy's SQLite queue: push",
    "scrapy_pop": "Scrapy's SQLite queue: pop",
}


ORDERS = {"lifo": "newest first", "fifo": "oldest first"}


def tables(results: dict[str, Any]) -> str:
    rows = [[TITLES[name], Spread.of(values).show()] for name, values in results["speed"].items()]
    first = table(["", "requests a second"], rows)
    costs = results["growth"]["us_a_request"]
    rows = [
        [
            f"{int(size):,}",
            *(Spread.of(costs[order][size]).show(unit=" us") for order in costs),
            f"{results['growth']['worker_mb'][size]:.0f} MB",
        ]
        for size in next(iter(costs.values()))
    ]
    second = table(["waiting", *(ORDERS[order] for order in costs), "memory of a worker"], rows)
    return (
        f"Durable, {BATCH} a commit (adds: {FILL}), medians of {results['rounds']} (lowest to highest):\n\n"
        f"{first}\n\nTo add, lease and settle a request, as the frontier grows:\n\n{second}"
    )


def goals(results: dict[str, Any]) -> list[Goal]:
    found = [
        Goal(
            TITLES[name], statistics.median(results["speed"][name]), GOAL_PER_SECOND, form="{:,.0f} a second"
        )
        for name in ("lease_settle", "lease_settle_100_hosts")
    ]
    for order, costs in results["growth"]["us_a_request"].items():
        first, *_, last = costs
        what = f"cost a request, {order}, {int(first):,} to {int(last):,} waiting"
        found.append(Goal(what, flatness(costs), GOAL_FLAT, at_most=True))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    found = {TITLES[name]: (Spread.of(values), " a second") for name, values in results["speed"].items()}
    for order, costs in results["growth"]["us_a_request"].items():
        for size, values in costs.items():
            found[f"cost a request, {order}, {int(size):,} waiting"] = (Spread.of(values), " us")
    return [f"{what}: {spread.show(unit=unit)}" for what, (spread, unit) in found.items() if spread.noisy]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    rows = [(TITLES[name], statistics.median(values)) for name, values in results["speed"].items()]
    curves = {
        ORDERS[order]: [(float(size), statistics.median(values)) for size, values in costs.items()]
        for order, costs in results["growth"]["us_a_request"].items()
    }
    return {
        "queue.svg": plot.bars(
            "SQLite, every commit flushed", rows, unit="requests a second", best="higher", log=True
        ),
        "queue-growth.svg": plot.lines(
            "To add, lease and settle a request", curves, x="requests waiting", y="us a request", log_x=True
        ),
    }


def measure(sizes: list[int], rounds: int, n: int, few: int, pages: int) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "speed": _told("speed", lambda: speed(rounds, n, few)),
        "growth": _told("growth", lambda: growth(sizes, rounds, n, pages)),
    }


def _told(name: str, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began = time.perf_counter()
    found = measured()
    print(f"measured {name} in {time.perf_counter() - began:.0f} s", flush=True)
    return found


QUICK: dict[str, Any] = {"sizes": [500, 1000], "rounds": 1, "n": 500, "few": 20, "pages": 20}
SHORT: dict[str, Any] = {
    "sizes": [10_000, 100_000, 1_000_000],
    "rounds": 5,
    "n": 4_000,
    "few": 200,
    "pages": 200,
}
FULL: dict[str, Any] = {
    "sizes": [10_000, 100_000, 1_000_000],
    "rounds": 9,  # short ones, taken in turns: a slow minute of the machine then hits every size
    "n": 8_000,
    "few": 300,
    "pages": 500,
}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("queue", "Measure the SQLite store.")
    parser.add_argument("--sizes", help="numbers of waiting requests, with commas between")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    if args.sizes:
        options["sizes"] = sorted(map(int, args.sizes.split(",")))
        if len(options["sizes"]) < 2:
            parser.error("--sizes: two at least")
    if args.rounds:
        options["rounds"] = args.rounds
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
