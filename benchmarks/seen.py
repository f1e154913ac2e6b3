"""What it takes to know what was seen: ``python -m benchmarks.seen`` (about ten minutes for 10,000,000 URLs).

Bytes a URL of each filter on each store, beside scrapy-redis's set of fingerprints on the same server; what a
new URL costs when there are few and when there are many; and how often a Bloom filter errs.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from struct import unpack
from typing import Any, Protocol

import redis

from benchmarks import command
from benchmarks.host import Host, serving
from benchmarks.measure import Goal, scratch, table
from scrapy_fleet.model import Batch, Entry, Outcome, Plan, Rule, SeenPlan, Worker
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.redis import RedisStore
from scrapy_fleet.store.sqlite import SqliteStore, knowing

ERROR = 0.001
PIECE = 100_000
BATCH = 500
ROUNDS = 5
WARM = 2000
PAYLOAD = b"x" * 60
LOOKS = 20
"""New URLs that a Bloom filter is asked for, for each that is added."""
GOALS = {"exact on Redis": 11.0, "bloom on Redis": 2.0, "exact on SQLite": 24.0}
FLAT = 1.5
STORES = ("Redis", "SQLite")


def filters(sizes: list[int], chosen: str) -> dict[str, tuple[SeenPlan, list[int]]]:
    """What is measured, and at which sizes; those whose names begin as the chosen one."""
    small, large = sizes[0], sizes[-1]
    kinds = {
        "exact": (SeenPlan(), sizes),
        f"bloom for {small:,}": (SeenPlan("bloom", small, ERROR), [small]),
        f"bloom for {large:,}": (SeenPlan("bloom", large, ERROR), sizes),
        f"bloom for {small:,}, grown": (SeenPlan("bloom", small, ERROR), sizes[1:]),
        "rolling": (SeenPlan("rolling"), sizes),
    }
    return {name: (plan, at) for name, (plan, at) in kinds.items() if at and name.startswith(chosen)}


def keys_from(seed: int) -> Iterator[int]:
    draw = Random(seed).randbytes
    while True:
        yield from unpack("<1000q", draw(8000))


def _pieces(keys: Iterator[int], number: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, number, PIECE):
        yield tuple(islice(keys, min(PIECE, number - first)))


class Side(Protocol):
    """One store: how it is opened, what it takes, and the time that counts."""

    def open(self, number: int) -> Store: ...
    def size(self, number: int) -> int: ...
    def clock(self) -> float: ...


class RedisSide:
    def __init__(self, host: Host) -> None:
        self._url = f"redis://127.0.0.1:{host.port}/0"
        self._host = host
        self.clock = host.cpu

    def open(self, number: int) -> Store:
        return RedisStore(self._url, f"seen{number}")

    def size(self, number: int) -> int:
        return self._host.memory()


class SqliteSide:
    # What a flush costs is the disk's: it is the same, however many there are.
    clock = staticmethod(time.process_time)

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def open(self, number: int) -> Store:
        return SqliteStore(self._folder / f"{number}.db", "seen", durability="normal")

    def size(self, number: int) -> int:
        """Without pages that are free: what the file had to grow for may have been cleared since."""
        with closing(sqlite3.connect(self._folder / f"{number}.db")) as file:
            pages, free, size = (
                int(file.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size


def fill(side: Side, plan: SeenPlan, sizes: list[int], few: int) -> dict[str, dict[str, float]]:
    """A crawl of each size; what there is to say of them."""
    found: dict[str, dict[str, float]] = {}
    sources = {size: keys_from(size) for size in sizes}
    for size in sizes:
        # What a crawl takes without any key, and a server once for all, is not counted.
        store = side.open(size)
        store.use_seen(plan)
        store.mark(tuple(islice(keys_from(3), WARM)))
        store.clear()
        store.close()
        before, filled = side.size(size), size - ROUNDS * few
        store = side.open(size)
        store.use_seen(plan)
        for piece in _pieces(sources[size], filled):
            store.mark(piece)
        store.close()
        # A Bloom filter has all its blocks by now, and takes no more.
        number = size if plan.kind == "bloom" else filled
        found[str(size)] = {"bytes": (side.size(size) - before) / number}
    # The last of them, by turns: what else the machine does makes all slower at the same time.
    stores = {size: side.open(size) for size in sizes}
    costs = [
        {size: _insert(stores[size], side, sources[size], few, plan) for size in sizes} for _ in range(ROUNDS)
    ]
    for size, store in stores.items():
        row = found[str(size)]
        row["us"] = min(cost[size] for cost in costs)
        row["growth"] = statistics.median(cost[size] / cost[sizes[0]] for cost in costs)
        if plan.kind == "bloom":
            looks = LOOKS * few
            row["error"] = sum(sum(store.seen(piece)) for piece in _pieces(keys_from(2), looks)) / looks
        store.close()
    return found


def _insert(store: Store, side: Side, keys: Iterator[int], few: int, plan: SeenPlan) -> float:
    """Microseconds for a new URL, by way of commits that queue it, as a worker does; then it is done."""
    worker = Worker("bench")
    store.join(worker, Plan(rule=Rule(concurrency=1_000_000), seen=plan), 3600.0)
    batches = [
        Batch(
            worker=worker.id,
            seq=seq,
            adds=tuple(Entry(slot="a", payload=PAYLOAD, key=key) for key in islice(keys, BATCH)),
        )
        for seq in range(few // BATCH)
    ]
    began = side.clock()
    for batch in batches:
        store.commit(batch)
    took = side.clock() - began
    for seq in range(few, 2 * few):
        leases = store.commit(Batch(worker=worker.id, seq=2 * seq, want=BATCH)).leases
        outcomes = tuple(Outcome(lease.token) for lease in leases)
        if not store.commit(Batch(worker=worker.id, seq=2 * seq + 1, outcomes=outcomes)).counts.open:
            break
    store.commit(Batch(worker=worker.id, seq=4 * few, leave=True))
    return took / few * 1e6


def on_redis(host: Host, sizes: list[int], few: int, chosen: str) -> dict[str, Any]:
    host.without_histograms()
    results = {}
    for name, (plan, at) in filters(sizes, chosen).items():
        host.empty()
        results[name] = told(f"Redis, {name}", partial(fill, RedisSide(host), plan, at, few))
    host.empty()
    return results


def scrapy_redis(host: Host, number: int) -> float:
    """Bytes a URL of what scrapy-redis keeps: a set of fingerprints, 40 hexadecimal digits each."""
    host.empty()
    before = host.memory()
    draw = Random(1).getrandbits
    with redis.Redis(port=host.port) as client:
        for _ in range(0, number, 1000):
            client.sadd("spider:dupefilter", *(f"{draw(160):040x}" for _ in range(1000)))
    took = host.memory() - before
    host.empty()
    return took / number


def on_sqlite(sizes: list[int], few: int, chosen: str) -> dict[str, Any]:
    knowing.MARKED_AT_ONCE = 5 * PIECE
    results = {}
    for name, (plan, at) in filters(sizes, chosen).items():
        with scratch() as folder:
            side = SqliteSide(folder)
            results[name] = told(f"SQLite, {name}", partial(fill, side, plan, at, few))
    return results


def told(name: str, measured: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    found = measured()
    print(f"measured {name} in {time.perf_counter() - began:.0f} s: {json.dumps(found)}", flush=True)
    return found


def measure(sizes: list[int], few: int, stores: list[str], chosen: str = "") -> dict[str, Any]:
    results: dict[str, Any] = {"sizes": sizes}
    if "Redis" in stores:
        with serving() as host:
            results["server"] = host.name
            results["scrapy_redis"] = told("scrapy-redis", lambda: scrapy_redis(host, min(sizes)))
            results["Redis"] = on_redis(host, sizes, few, chosen)
    if "SQLite" in stores:
        results["SQLite"] = on_sqlite(sizes, few, chosen)
    return results


def tables(results: dict[str, Any]) -> str:
    rows = []
    if "scrapy_redis" in results:
        number, server = min(results["sizes"]), results["server"]
        title = f"scrapy-redis, {server}"
        rows.append([title, f"{number:,}", f"{results['scrapy_redis']:.1f}", "", ""])
    for store in STORES:
        for name, sizes in results.get(store, {}).items():
            for size, row in sizes.items():
                error = f"{100 * row['error']:.3f} %" if "error" in row else "0"
                where = results["server"] if store == "Redis" else store
                cells = [f"{row['bytes']:.2f}", f"{row['us']:.1f}", error]
                rows.append([f"{name}, {where}", f"{int(size):,}", *cells])
    return table(["", "URLs", "bytes a URL", "us a new URL", "wrongly known"], rows)


def goals(results: dict[str, Any]) -> list[Goal]:
    found = []
    small, large = (str(size) for size in (results["sizes"][0], results["sizes"][-1]))
    for store in STORES:
        for name, sizes in results.get(store, {}).items():
            most = GOALS.get(f"{name.split()[0]} on {store}")
            if most and small in sizes and name in ("exact", f"bloom for {int(small):,}"):
                what = f"{name} on {store}, {int(small):,} URLs, a URL"
                found.append(Goal(what, sizes[small]["bytes"], most, at_most=True, form="{:.2f} bytes"))
            if small in sizes and large in sizes and small != large:
                what = f"{name} on {store}: a new URL at {int(large):,} against {int(small):,}"
                found.append(Goal(what, sizes[large]["growth"], FLAT, at_most=True))
            for size, row in sizes.items():
                if "error" in row:
                    what = f"{name} on {store}, {int(size):,} URLs, wrongly known"
                    found.append(Goal(what, row["error"], ERROR, at_most=True, form="{:.3%}"))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    """All is counted, or measured by the processor's time of one process."""
    return []


QUICK: dict[str, Any] = {"sizes": [3000, 30_000], "few": 500, "stores": list(STORES)}
SHORT: dict[str, Any] = {"sizes": [30_000, 300_000], "few": 2500, "stores": list(STORES)}
FULL: dict[str, Any] = {"sizes": [1_000_000, 10_000_000], "few": 10_000, "stores": list(STORES)}


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    small = min(results["sizes"])
    rows = [("scrapy-redis", results["scrapy_redis"])] if "scrapy_redis" in results else []
    for store in STORES:
        for name, sizes in results.get(store, {}).items():
            if name in ("exact", "rolling", f"bloom for {small:,}") and str(small) in sizes:
                rows.append((f"scrapy-fleet, {name.split()[0]}, {store}", sizes[str(small)]["bytes"]))
    return {"seen.svg": plot.bars(f"A seen URL, of {small:,}", rows, unit="bytes", best="lower")}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("seen", "Measure the filters.")
    parser.add_argument("--sizes", help="numbers of URLs, with commas between")
    parser.add_argument("--stores", nargs="+", choices=STORES)
    parser.add_argument("--filter", default="", help="only those whose name begins so, as 'exact'")
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL) | {"chosen": args.filter}
    if args.stores:
        options["stores"] = args.stores
    if args.sizes:
        options["sizes"] = sorted(map(int, args.sizes.split(",")))
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
