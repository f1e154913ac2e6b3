"""What a request costs as a crawl grows: more requests that wait, and more hosts.

``python -m benchmarks.curves [--short] [--quick] [--json FILE]``

To come, be leased and be settled, in batches as a busy worker makes them: on SQLite with
``FLEET_DURABILITY = "full"``, and on Valkey (or Redis) on this machine. As many requests come as go, so that
what waits stays the same. The sizes take turns, so that a slow minute of the machine hits all of them. Some
of the files that were filled are then crawled for a while by real workers, to see their memory.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scrapy import Request

from benchmarks import command
from benchmarks.host import Host, serving
from benchmarks.measure import Goal, Spread, run_worker, scratch, table
from benchmarks.queue import BATCH, SPIDER, Flow
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.model import Entry
from scrapy_fleet.ops.site import Shape, running

FLAT = 1.5
"""How much more a request may cost where a hundred times as many wait."""
TIMES = 100
NUMBER = 1_000_000_000
"""Numbers of what is filled in begin here: all have as many digits, so that one request stands for all."""
FILL = {"sqlite": 100_000, "redis": 2_000}
"""Requests a commit, when a store is filled: few large ones let a file be written mostly in order."""

QUICK: dict[str, Any] = {
    "sizes": [500, 1000],
    "hosts": [1, 20],
    "waiting": 500,
    "rounds": 1,
    "n": 300,
    "crawled": [1000],
    "pages": 20,
}
SHORT: dict[str, Any] = {
    "sizes": [1_000, 10_000, 100_000],
    "hosts": [1, 100, 1_000, 10_000],
    "waiting": 20_000,
    "rounds": 5,
    "n": 2_000,
    "crawled": [1_000, 100_000],
    "pages": 200,
}
FULL: dict[str, Any] = {
    "sizes": [10_000, 100_000, 1_000_000, 10_000_000],
    "hosts": [1, 10, 100, 1_000, 10_000, 100_000],
    "waiting": 200_000,
    "rounds": 9,
    "n": 8_000,
    "crawled": [10_000, 10_000_000],
    "pages": 500,
}


class Side(NamedTuple):
    """Where crawls are kept, and in which order they go."""

    title: str
    folder: Path
    order: str = "lifo"
    host: Host | None = None

    def file(self, waiting: int, hosts: int = 1) -> Path:
        return self.folder / f"{self.order}-{waiting}-{hosts}.db"

    def flow(self, site: str, waiting: int, hosts: int) -> Flow:
        if self.host is None:
            return Flow(f"sqlite://{self.file(waiting, hosts)}", site, hosts, self.order)
        url = f"redis://127.0.0.1:{self.host.port}/0"
        return Flow(url, site, hosts, self.order, crawl=f"{waiting}-{hosts}")

    def size(self, waiting: int, hosts: int) -> int:
        """Bytes: of the file, or of all that the server has."""
        if self.host is not None:
            return self.host.memory()
        with contextlib.closing(sqlite3.connect(self.file(waiting, hosts))) as file:
            [pages] = file.execute("PRAGMA page_count").fetchone()
            [bytes_a_page] = file.execute("PRAGMA page_size").fetchone()
        return int(pages * bytes_a_page)

    def cpu(self, flow: Flow) -> float:
        """Seconds: of this process, or of the server."""
        return flow.cpu if self.host is None else self.host.cpu()


def fill(side: Side, flow: Flow, site: str, number: int) -> None:
    """Requests as a crawl would have stored them, made fast."""
    request = Request(f"{site}/p/{NUMBER}", callback=SPIDER.parse, meta={"depth": 3})
    before, digits, after = Codec(SPIDER).encode(request).partition(b"%d" % NUMBER)
    assert digits
    step = FILL["sqlite" if side.host is None else "redis"]
    began = told = time.monotonic()
    for start in range(0, number, step):
        adds = tuple(
            Entry(
                slot=flow.hosts[i % len(flow.hosts)],
                payload=b"%b%d%b" % (before, NUMBER + i, after),
                key=flow.key(),
            )
            for i in range(start, min(start + step, number))
        )
        flow.commit(adds=adds)
        if (now := time.monotonic()) > told + 5 or start + step >= number:
            told, done = now, min(start + step, number)
            print(
                f"{side.title}: filled {done:,} of {number:,}, {done / (now - began):,.0f} a second",
                flush=True,
            )


def curve(sides: list[Side], points: list[tuple[int, int]], site: str, rounds: int, n: int) -> dict[str, Any]:
    """For pairs of waiting requests and hosts, by side: microseconds a request in every round."""
    flows: dict[tuple[Side, int, int], Flow] = {}
    found: dict[str, list[dict[str, Any]]] = {side.title: [] for side in sides}
    for side in sides:
        for waiting, hosts in points:
            before = side.size(waiting, hosts) if side.host else 0
            flow = flows[side, waiting, hosts] = side.flow(site, waiting, hosts)
            fill(side, flow, site, waiting)
            size = (side.size(waiting, hosts) - before) / waiting
            row: dict[str, Any] = {"waiting": waiting, "hosts": hosts, "bytes": size, "us": [], "cpu_us": []}
            found[side.title].append(row)
    for number in range(rounds):
        for index in range(len(points)):
            for side in sides:
                row, flow = found[side.title][index], flows[side, *points[index]]
                cpu = side.cpu(flow)
                row["us"].append(1e6 * flow.run(n, adding=True) / n)
                row["cpu_us"].append(1e6 * (side.cpu(flow) - cpu) / n)
        print(f"round {number + 1} of {rounds}: {_newest(found)}", flush=True)
    for flow in flows.values():
        flow.leave()
    return found


def _newest(found: dict[str, Any]) -> str:
    newest = {title: ", ".join(f"{row['us'][-1]:.0f}" for row in rows) for title, rows in found.items()}
    return "; ".join(f"{title} {figures} us" for title, figures in newest.items())


@contextlib.contextmanager
def serving_empty() -> Iterator[Host]:
    with serving() as host:
        host.without_histograms()
        yield host


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


def measure(
    sizes: list[int], hosts: list[int], waiting: int, rounds: int, n: int, crawled: list[int], pages: int
) -> dict[str, Any]:
    """``waiting``: how many there are while hosts grow; ``crawled``: at which sizes a worker is measured."""
    # A link on every page: what waits neither grows nor shrinks while workers crawl.
    shape = Shape("flat", pages=NUMBER + max(sizes), links=1)
    with scratch() as folder, running(shape) as site, serving_empty() as host:
        address = site.url("").rstrip("/")
        newest = Side("SQLite", Path(folder))
        oldest = Side("SQLite, oldest first", Path(folder), "fifo")
        server = Side(host.name, Path(folder), host=host)
        points = [(size, 1) for size in sizes]
        results: dict[str, Any] = {"rounds": rounds, "server": host.name}
        results["waiting"] = curve([newest, oldest, server], points, address, rounds, n)
        results["worker_mb"] = {
            str(size): worker_memory(newest.file(size), site.start_url, pages)
            for size in crawled
            if size in sizes
        }
        host.empty()
        results["hosts"] = curve([newest, server], [(waiting, each) for each in hosts], address, rounds, n)
    return results


def growth(rows: list[dict[str, Any]], what: str, most: int | None = None) -> float:
    """How many times the first row's cost the dearest has, of those up to ``most`` times as large."""
    first, *others = rows
    limit = None if most is None else most * first[what]
    ratios = [
        statistics.median(one / other for one, other in zip(row["us"], first["us"], strict=True))
        for row in others
        if limit is None or row[what] <= limit
    ]
    return max(ratios, default=1.0)


def tables(results: dict[str, Any]) -> str:
    sizes, hosts = (_table(results, what) for what in ("waiting", "hosts"))
    memory = ", ".join(f"{mb:.0f} MB with {int(size):,}" for size, mb in results["worker_mb"].items())
    among = f"{results['hosts']['SQLite'][0]['waiting']:,}"
    return (
        f"Microseconds to add, lease and settle a request, medians of {results['rounds']} (lowest to "
        f"highest), while so many wait (CPU: of the process; with a server, of that alone):\n\n"
        f"{sizes}\n\n"
        f"The most memory of a worker that goes on with such a crawl on SQLite: {memory} waiting.\n\n"
        f"The same with {among} waiting, on so many hosts:\n\n{hosts}"
    )


def _table(results: dict[str, Any], what: str) -> str:
    headers, lines = [what], [[f"{row[what]:,}"] for row in results[what]["SQLite"]]
    for title, rows in results[what].items():
        headers += [title, "CPU", "bytes each"]
        for line, row in zip(lines, rows, strict=True):
            cpu = statistics.median(row["cpu_us"])
            line += [Spread.of(row["us"]).show(), f"{cpu:.0f}", f"{row['bytes']:,.0f}"]
    return table(headers, lines)


def goals(results: dict[str, Any]) -> list[Goal]:
    """Hosts count from where each request of a batch has its own: below, those of a host share its cost."""
    found = []
    for what in ("waiting", "hosts"):
        for title, rows in results[what].items():
            counted = [row for row in rows if what == "waiting" or row[what] >= BATCH]
            if counted:
                first, limit = counted[0][what], TIMES * counted[0][what]
                last = max(row[what] for row in counted if row[what] <= limit)
                told = f"cost a request, {title}, {first:,} to {last:,} {what}"
                found.append(Goal(told, growth(counted, what, TIMES), FLAT, at_most=True))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    return [
        f"cost a request, {title}, {row[what]:,} {what}: {Spread.of(row['us']).show(unit=' us')}"
        for what in ("waiting", "hosts")
        for title, rows in results[what].items()
        for row in rows
        if Spread.of(row["us"]).noisy
    ]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks.plot import lines

    return {
        f"curves-{what}.svg": lines(
            f"The cost of a request, by {title}",
            {
                side: [(row[what], statistics.median(row["us"])) for row in rows]
                for side, rows in results[what].items()
            },
            x=title,
            y="us to add, lease and settle a request",
            log_x=True,
            note=note,
        )
        for what, title, note in (
            ("waiting", "waiting requests", "One host. As many requests come as go."),
            ("hosts", "hosts", f"{results['hosts']['SQLite'][0]['waiting']:,} requests wait."),
        )
    }


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("curves", "Measure growing crawls.")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--most", type=int, metavar="N", help="no more waiting requests than so many")
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    if args.rounds:
        options["rounds"] = args.rounds
    if args.most:
        options["sizes"] = [size for size in options["sizes"] if size <= args.most]
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
