"""The filters alone, beside Scrapy's own: ``python -m benchmarks.dupefilters``.

What one call costs (CPU time, without the fingerprint, which is the same for all), what the process's memory
grows by, and how large the file in ``JOBDIR`` is. Each is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.measure import ROOT, Goal, scratch, table

PLACES = ("memory", "JOBDIR")
CLASSES = {
    "Scrapy's own": "scrapy.dupefilters.RFPDupeFilter",
    "exact": "scrapy_fleet.dupefilters.ExactDupeFilter",
    "bloom": "scrapy_fleet.dupefilters.BloomDupeFilter",
    "rolling": "scrapy_fleet.dupefilters.RollingDupeFilter",
}


class FakeRequest:
    __slots__ = ("fingerprint",)


class AsItIs:
    def fingerprint(self, request: FakeRequest) -> bytes:
        return request.fingerprint  # type: ignore[attr-defined, no-any-return]


def requests(number: int) -> Iterator[Any]:
    for each in range(number):
        request = FakeRequest()
        request.fingerprint = sha1(b"%d" % each).digest()  # type: ignore[attr-defined]
        yield request


def measure_one(cls: str, jobdir: str, urls: int) -> dict[str, float]:
    from scrapy.utils.misc import load_object

    one = load_object(cls)(jobdir or None, fingerprinter=AsItIs())
    one.open()

    def timed(ask: Any) -> float:
        began = time.process_time()
        for request in requests(urls):
            ask(request)
        return time.process_time() - began

    nothing = timed(lambda request: None)
    before = resident()
    new = timed(one.request_seen)
    memory = resident() - before
    known = timed(one.request_seen)
    one.close("finished")
    files = sum(file.stat().st_size for file in Path(jobdir).iterdir()) if jobdir else 0
    return {
        "new_us": (new - nothing) / urls * 1e6,
        "known_us": (known - nothing) / urls * 1e6,
        "memory": memory / urls,
        "file": files / urls,
    }


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(urls: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cls in CLASSES.items():
        for where in PLACES:
            with scratch() as folder:
                jobdir = folder if where == "JOBDIR" else ""
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.dupefilters", "--one", cls, jobdir, str(urls)],
                    env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True,
                )  # fmt: skip
            found.setdefault(name, {})[where] = json.loads(done.stdout)
            print(f"{name}, {where}: {found[name][where]['new_us']:.1f} us a new URL", flush=True)
    return {"urls": urls, "filters": found}


def tables(results: dict[str, Any]) -> str:
    rows = [
        [
            f"{name}, {where}",
            f"{row['new_us']:.1f}",
            f"{row['known_us']:.1f}",
            f"{row['memory']:.1f}",
            f"{row['file']:.1f}" if where == "JOBDIR" else "",
        ]
        for name, places in results["filters"].items()
        for where, row in places.items()
    ]
    head = ("filter", "new, us", "known, us", "memory, bytes a URL", "file, bytes a URL")
    return f"{results['urls']:,} URLs:\n\n{table(head, rows)}"


def goals(results: dict[str, Any]) -> list[Goal]:
    """None were set: these are for a choice between them."""
    return []


def noise(results: dict[str, Any]) -> list[str]:
    """All is counted, or measured by the processor's time of one process."""
    return []


def plots(results: dict[str, Any]) -> dict[str, str]:
    return {}


QUICK: dict[str, Any] = {"urls": 1000}
SHORT: dict[str, Any] = {"urls": 30_000}
FULL: dict[str, Any] = {"urls": 1_000_000}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("dupefilters", "Measure the filters for Scrapy's own scheduler.")
    parser.add_argument("--urls", type=int)
    parser.add_argument("--one", nargs=3, metavar=("CLASS", "JOBDIR", "URLS"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        cls, jobdir, urls = args.one
        print(json.dumps(measure_one(cls, jobdir, int(urls))))
        return
    options = command.size_of(args, QUICK, SHORT, FULL)
    if args.urls:
        options["urls"] = args.urls
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
