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

from benchmarks.measure import ROOT, scratch, table

URLS = 1_000_000
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


def measure(urls: int) -> Iterator[list[str]]:
    for name, cls in CLASSES.items():
        for where in ("memory", "JOBDIR"):
            with scratch() as folder:
                jobdir = folder if where == "JOBDIR" else ""
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.dupefilters", "--one", cls, jobdir, str(urls)],
                    env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True,
                )  # fmt: skip
            found = json.loads(done.stdout)
            file = f"{found['file']:.1f}" if jobdir else "-"
            yield [
                f"{name}, {where}",
                f"{found['new_us']:.1f}",
                f"{found['known_us']:.1f}",
                f"{found['memory']:.1f}",
                file,
            ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.dupefilters", description="Measure the filters.")
    parser.add_argument("--urls", type=int, default=URLS)
    parser.add_argument("--one", nargs=3, metavar=("CLASS", "JOBDIR", "URLS"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        cls, jobdir, urls = args.one
        print(json.dumps(measure_one(cls, jobdir, int(urls))))
        return
    head = ("filter", "new, us", "known, us", "memory, bytes a URL", "file, bytes a URL")
    print(f"{args.urls:,} URLs")
    print(table(head, list(measure(args.urls))))


if __name__ == "__main__":
    main()
