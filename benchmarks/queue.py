"""The store alone: how fast it is.

``python -m benchmarks.queue [--quick | --short] [--rounds 9]``

SQLite with ``FLEET_DURABILITY = "full"``, in batches as a busy worker makes them, against push and pop
on the SQLite queue of Scrapy, and against Crawlee's request queue on SQLite (see ``benchmarks.crawlee``). On
all sides requests are turned into bytes and back within the measured time. What a request costs as the
frontier grows is in ``benchmarks.curves``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.squeues import PickleLifoSQLiteQueue

from benchmarks import command, crawlee
from benchmarks.measure import Goal, Spread, scratch, table
from benchmarks.worker import LinksSpider
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.model import Batch, Entry, Lease, Outcome, Plan, Rule, Sample
from scrapy_fleet.process import this_worker
from scrapy_fleet.settings import open_store

BATCH = 100
FILL = 500
GOAL_PER_SECOND = 10_000
TTL = 600.0

SPIDER = LinksSpider(url="http://127.0.0.1/p/0")


class Flow:
    """A worker without Scrapy on a store: fills it, and then keeps requests flowing through it."""

    def __init__(
        self, url: str, site: str, hosts: int = 1, order: str = "lifo", crawl: str = LinksSpider.name
    ) -> None:
        self.store = open_store(url, crawl, durability="full")
        self.hosts = [f"host{n}" for n in range(hosts)]
        self._codec = Codec(SPIDER)
        self._site = site
        self._numbers = count()
        self._keys = Random(0)
        self._seq = count()
        self._worker = this_worker()
        self.cpu = 0.0
        """Seconds of CPU in what :meth:`run` measured."""
        # Room for two batches, so that it is not politeness what is measured.
        rule = Rule(concurrency=max(1, 2 * BATCH // hosts))
        self.store.join(self._worker, Plan(rule=rule, lifo=order == "lifo"), TTL)

    def requests(self, n: int) -> list[Request]:
        return [
            Request(f"{self._site}/p/{next(self._numbers)}", callback=SPIDER.parse, meta={"depth": 3})
            for _ in range(n)
        ]

    def entries(self, requests: list[Request], slots: Sequence[str]) -> tuple[Entry, ...]:
        """For these hosts in turn."""
        return tuple(
            Entry(
                slot=slots[i % len(slots)],
                payload=self._codec.encode(request),
                key=self.key(),
            )
            for i, request in enumerate(requests)
        )

    def key(self) -> int:
        """As a fingerprint: any number."""
        return self._keys.getrandbits(64) - (1 << 63)

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
            self.commit(adds=self.entries(requests, self.hosts))
            seconds += time.perf_counter() - began
        return seconds

    def run(self, n: int, *, adding: bool) -> float:
        """Lease and settle (and add as many, to the same hosts), a batch at a time; seconds."""
        done = 0
        leases = self.commit(want=BATCH)
        seconds = 0.0
        while done < n:
            requests = self.requests(len(leases)) if adding else []
            slots = [lease.slot for lease in leases]
            began, cpu = time.perf_counter(), time.process_time()
            done += len(leases)
            leases = self.commit(adds=self.entries(requests, slots), want=BATCH, **settled(leases))
            seconds += time.perf_counter() - began
            self.cpu += time.process_time() - cpu
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


def fewer(few: int) -> int:
    """Crawlee's queue takes several milliseconds for each."""
    return max(10, few // 2)


def speed(rounds: int, n: int, few: int, crawlees: str | None = None) -> dict[str, list[float]]:
    """Requests a second: each kind of work, a measurement a round; ``crawlees`` is the Python of Crawlee."""
    kinds: dict[str, list[float]] = {name: [] for name in (ALL if crawlees else TITLES)}
    for _ in range(rounds):
        with scratch() as folder:
            for name, hosts in (("lease_settle", 1), ("lease_settle_100_hosts", 100)):
                flow = Flow(f"sqlite://{folder}/{hosts}.db", "http://127.0.0.1", hosts)
                filling = flow.fill(n + BATCH)
                if hosts == 1:
                    kinds["add"].append((n + BATCH) / filling)
                kinds[name].append(n / flow.run(n, adding=False))
                flow.leave()
            push, pop = scrapys_queue(Path(folder), few)
            kinds["scrapy_push"].append(few / push)
            kinds["scrapy_pop"].append(few / pop)
            if crawlees:
                added, handled = crawlee.speed(crawlees, folder, fewer(few))
                kinds["crawlee_add"].append(fewer(few) / added)
                kinds["crawlee_handle"].append(fewer(few) / handled)
    return kinds


TITLES = {
    "add": "scrapy-fleet: add",
    "lease_settle": "scrapy-fleet: lease and settle, 1 host",
    "lease_settle_100_hosts": "scrapy-fleet: lease and settle, 100 hosts",
    "scrapy_push": "Scrapy's SQLite queue: push",
    "scrapy_pop": "Scrapy's SQLite queue: pop",
}
CRAWLEES = {
    "crawlee_add": "Crawlee's SQLite queue: add",
    "crawlee_handle": "Crawlee's SQLite queue: fetch and handle",
}
ALL = {**TITLES, **CRAWLEES}
OURS = {
    "scrapy_push": "add",
    "scrapy_pop": "lease_settle",
    "crawlee_add": "add",
    "crawlee_handle": "lease_settle",
}
"""What each of theirs is compared with."""


def tables(results: dict[str, Any]) -> str:
    found = results["speed"]

    def faster(name: str) -> str:
        if name not in OURS:
            return ""
        ratio = statistics.median(
            our / their for our, their in zip(found[OURS[name]], found[name], strict=True)
        )
        return f"{ratio:,.0f}x"

    rows = [[ALL[name], Spread.of(values).show(), faster(name)] for name, values in found.items()]
    return (
        f"Durable, {BATCH} a commit (adds: {FILL}), medians of {results['rounds']} (lowest to highest):\n\n"
        f"{table(['', 'requests a second', 'scrapy-fleet is faster'], rows)}\n\n{about_crawlee(results)}"
    )


def about_crawlee(results: dict[str, Any]) -> str:
    found = results.get("crawlee", {"no_peer": "it was not measured"})  # results may be older
    if "no_peer" in found:
        return f"Crawlee is not in the table: {found['no_peer']}."
    dead = found["takeover"]
    got = "some of them" if dead["given"] else "none of them"
    return (
        f"Crawlee {found['version']}. A client of its queue was killed with {dead['held']} requests in hand, "
        f"and another one got {got}: they stay blocked for {dead['seconds']:.0f} s after they were fetched "
        f"(of which its table gave them {dead['left']:.0f} s more)."
    )


def goals(results: dict[str, Any]) -> list[Goal]:
    return [
        Goal(ALL[name], statistics.median(results["speed"][name]), GOAL_PER_SECOND, form="{:,.0f} a second")
        for name in ("lease_settle", "lease_settle_100_hosts")
    ]


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    found = {ALL[name]: Spread.of(values) for name, values in results["speed"].items()}
    return [f"{what}: {spread.show(unit=' a second')}" for what, spread in found.items() if spread.noisy]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    rows = [(ALL[name], statistics.median(values)) for name, values in results["speed"].items()]
    title = "SQLite, every commit flushed to the disk"
    return {"queue.svg": plot.bars(title, rows, unit="requests a second", best="higher", log=True)}


def measure(rounds: int, n: int, few: int, *, beside: bool = True) -> dict[str, Any]:
    """Everything; ``beside=False`` leaves Crawlee out."""
    began = time.perf_counter()
    other: dict[str, Any] = crawlee.find() if beside else {"python": None, "no_peer": "it was left out"}
    python = other.pop("python")
    if python:
        other["takeover"] = crawlee.takeover(python)
    found = speed(rounds, n, few, python)
    print(f"measured speed in {time.perf_counter() - began:.0f} s", flush=True)
    return {"rounds": rounds, "speed": found, "crawlee": other}


QUICK: dict[str, Any] = {"rounds": 1, "n": 500, "few": 20, "beside": False}
SHORT: dict[str, Any] = {"rounds": 5, "n": 4_000, "few": 200}
FULL: dict[str, Any] = {"rounds": 9, "n": 8_000, "few": 300}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("queue", "Measure the SQLite store.")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    if args.rounds:
        options["rounds"] = args.rounds
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
