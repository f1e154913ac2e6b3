"""How polite a crawl is, as the site sees it: ``python -m benchmarks.pace [--quick] [--short]``.

Eight hosts, a delay of 0.5 s each without jitter, 16 requests at a time, one worker and three: how many
requests a second there are altogether (16 are permitted), and how close two requests to one host come.
Every page is known from the first one, more of them than can be fetched in the time that it is looked at.

The crawls of one worker run at the same time, and then those of three: each is idle most of the time, and
has a site and (on Redis) a server of its own.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import command, peer
from benchmarks.crawl import ADDON
from benchmarks.host import serving
from benchmarks.measure import Goal, Spread, scratch, start_worker, table
from benchmarks.plot import bars
from scrapy_fleet.ops.site import RunningSite, Shape, running

HOSTS = 8
DELAY = 0.5
PERMITTED = HOSTS / DELAY
SETTINGS: dict[str, Any] = {
    "DOWNLOAD_DELAY": DELAY,
    "DOWNLOAD_DELAY_JITTER": 0,
    "CONCURRENT_REQUESTS": 16,
}
CLOSE = 0.9
"""Of the delay: a gap under this is one that the site did not ask for."""
LOOK = 0.01
RATE = 15.8
"""What stock Scrapy reaches of the 16 that are permitted."""

SIDES = {
    "stock": "Scrapy, in memory",
    "peer": "scrapy-redis",
    "fleet": "scrapy-fleet, SQLite",
    "fleet-redis": "scrapy-fleet, Redis",
}
OURS = ("fleet", "fleet-redis")
ON_SERVER = ("peer", "fleet-redis")
ALONE = ("stock",)
"""What one worker alone can do."""

LIMIT = 120.0

QUICK: dict[str, Any] = {"seconds": 1.3, "rounds": 1, "sides": ["fleet"], "workers": [1]}
SHORT: dict[str, Any] = {"seconds": 12.0, "rounds": 1}
FULL: dict[str, Any] = {"seconds": 45.0, "rounds": 3}


class Meeting(NamedTuple):
    """Where the workers of crawls that run at the same time wait for each other: while some still start, the
    others would be late."""

    folder: str
    workers: int


def crawled(side: str, workers: int, seconds: float, python: str | None, meeting: Meeting) -> dict[str, Any]:
    """Look at one crawl for so long; it is killed in the middle."""
    pages = HOSTS * round(2 * seconds * PERMITTED / HOSTS)
    shape = Shape("flat", pages=pages, links=pages, hosts=HOSTS)
    with ExitStack() as stack:
        port = stack.enter_context(serving()).port if side in ON_SERVER else 0
        folder, site = stack.enter_context(scratch()), stack.enter_context(running(shape))
        settings = {**SETTINGS, **settings_of(side, folder, port)}
        job = {"url": site.start_url, "settings": settings, "together": meeting.workers}
        own = [python] if python and side == "peer" else []
        crew = [start_worker(job, meeting.folder, *own) for _ in range(workers)]
        for worker in crew:
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        site.wait(pages=1, timeout=LIMIT)
        stalled = watch(seconds)
        site.wait(pages=2 * HOSTS, timeout=LIMIT)  # on a busy machine
        if any(worker.poll() for worker in crew):
            log = Path(meeting.folder, "log").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"{title(side, workers)}: a worker ended.\n{log[-2000:]}")
        return judged(site) | {"stalled": stalled}


def settings_of(side: str, folder: str, port: int) -> dict[str, Any]:
    server = f"redis://127.0.0.1:{port}/0"
    return {
        "stock": {},
        "peer": {**peer.SETTINGS, "REDIS_URL": server},
        "fleet": {**ADDON, "FLEET_URL": f"sqlite://{folder}/fleet"},
        "fleet-redis": {**ADDON, "FLEET_URL": server},
    }[side]


def judged(site: RunningSite) -> dict[str, Any]:
    """By the site's log. Every worker of scrapy-redis asks for the first page, which only counts once."""
    asked = [line for line in site.log() if line.event == "arrive" and line.path.startswith("/p/")]
    begin, *rest = asked
    rest = [line for line in rest if line.path != begin.path]
    times: dict[str, list[float]] = defaultdict(list)
    for line in (begin, *rest):
        times[line.host].append(line.time)
    gaps = [later - earlier for each in times.values() for earlier, later in itertools.pairwise(each)]
    return {
        # The first request to each host need not wait.
        "rate": (1 + len(rest) - len(times)) / (rest[-1].time - rest[0].time),
        "smallest_gap": min(gaps),
        "close": sum(gap < CLOSE * DELAY for gap in gaps) / len(gaps),
    }


def watch(seconds: float) -> float:
    """Wait so long; by how much this machine was late, at the worst, with waking us."""
    until = time.perf_counter() + seconds
    worst = 0.0
    while (began := time.perf_counter()) < until:
        time.sleep(LOOK)
        worst = max(worst, time.perf_counter() - began - LOOK)
    return worst


def measure(
    seconds: float, rounds: int, *, sides: list[str] | None = None, workers: list[int] | None = None
) -> dict[str, Any]:
    results: dict[str, Any] = {"seconds": seconds, "rounds": rounds}
    chosen = sides or list(SIDES)
    python = peer.look(results, wanted="peer" in chosen)
    chosen = [side for side in chosen if python or side != "peer"]
    runs: dict[str, Any] = {}
    for number, many in itertools.product(range(rounds), workers or [1, 3]):
        there = [side for side in chosen if many == 1 or side not in ALONE]
        with scratch() as folder, ThreadPoolExecutor(len(there)) as threads:
            meeting = Meeting(folder, many * len(there))
            found = {side: threads.submit(crawled, side, many, seconds, python, meeting) for side in there}
        for side, one in found.items():
            result = one.result()
            runs.setdefault(str(many), {}).setdefault(side, []).append(result)
            print(
                f"round {number + 1} {title(side, many):32} {result['rate']:5.1f} requests/s, "
                f"smallest gap {1000 * result['smallest_gap']:3.0f} ms, {result['close']:.0%} too close "
                f"(the machine was late by {1000 * result['stalled']:.0f} ms)",
                flush=True,
            )
    return {**results, "runs": runs}


def title(side: str, workers: int | str) -> str:
    return f"{SIDES[side]}, {workers} worker{'s' * (int(workers) > 1)}"


def _runs(results: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By side and number of workers."""
    return {
        (side, many): runs
        for side in SIDES
        for many, sides in results["runs"].items()
        if (runs := sides.get(side))
    }


def _rate(runs: list[dict[str, Any]]) -> Spread:
    return Spread.of(run["rate"] for run in runs)


def tables(results: dict[str, Any]) -> str:
    with_peer = f"scrapy-redis {results['peer'] or 'is missing: ' + results['no_peer']}"
    head = f"{HOSTS} hosts, a delay of {DELAY:g} s each; for {results['seconds']:g} s"
    rows = [
        [
            title(*which),
            _rate(runs).show(1),
            f"{_rate(runs).median / PERMITTED:.0%}",
            f"{1000 * min(run['smallest_gap'] for run in runs):.0f} ms",
            f"{statistics.mean(run['close'] for run in runs):.1%}",
            f"{1000 * max(run['stalled'] for run in runs):.0f} ms",
        ]
        for which, runs in _runs(results).items()
    ]
    columns = ["requests/s", f"of the {PERMITTED:g} permitted", "smallest gap", f"gaps under {CLOSE:.0%}"]
    columns.append("machine late by")
    return f"{with_peer}; medians of {results['rounds']}:\n\n{table([head, *columns], rows)}"


def goals(results: dict[str, Any]) -> list[Goal]:
    found = []
    for (side, many), runs in _runs(results).items():
        if side in OURS:
            what = title(side, many)
            if many == "1":
                form = f"{{:.1f}}/s of {PERMITTED:g}"
                found.append(Goal(f"{what}, {HOSTS} hosts", _rate(runs).median, RATE, form=form))
            close = max(run["close"] for run in runs)
            too_close = f"{what}, gaps under {CLOSE:.0%} of the delay"
            found.append(Goal(too_close, close, 0, at_most=True, form="{:.1%}"))
    return found


def noise(results: dict[str, Any]) -> list[str]:
    found = [
        f"{title(*which)}: {_rate(runs).show(1)} requests/s"
        for which, runs in _runs(results).items()
        if _rate(runs).noisy
    ]
    stalled = max(run["stalled"] for runs in _runs(results).values() for run in runs)
    if stalled > (1 - CLOSE) * DELAY / 2:  # a request may have to wait more than once
        late = f"{1000 * stalled:.0f} ms"
        found.append(f"a process had to wait for {late} until it could run: gaps may be as much too small")
    return found


def plots(results: dict[str, Any]) -> dict[str, str]:
    runs = {title(*which): runs for which, runs in _runs(results).items()}
    rates = [(what, 100 * _rate(each).median / PERMITTED) for what, each in runs.items()]
    close = [(what, 100 * statistics.mean(run["close"] for run in each)) for what, each in runs.items()]
    note = f"{HOSTS} hosts, {DELAY:g} s between requests to one."
    title_of_rates = "Requests a second, of what the delay permits"
    title_of_close = f"Requests that came sooner than {CLOSE:.0%} of the delay after the one before"
    return {
        "pace.svg": bars(title_of_rates, rates, unit="%", best="100 % is best", note=note),
        "pace-gaps.svg": bars(title_of_close, close, unit="%", best="lower", note=note),
    }


def main(arguments: list[str] | None = None) -> None:
    args = command.parser("pace", "See how polite crawls are.").parse_args(arguments)
    results = measure(**command.size_of(args, QUICK, SHORT, FULL))
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
