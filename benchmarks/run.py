"""All measurements: ``python -m benchmarks.run`` (``make bench-full``), or fewer of each with ``--short``
(``make bench``, about ten minutes on two cores).

A full run writes ``benchmarks/results/<date>.json`` and renews ``docs/benchmarks.md`` and its pictures. A
short one writes ``benchmarks/results/<date>-short.json`` and leaves the page alone, unless it has ``--keep``.
The machine should do nothing else meanwhile. ``--quick`` only sees that everything works and keeps nothing.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import check, kept, report, speed
from benchmarks.measure import busy, machine
from benchmarks.parts import NAMES, PARTS, options_of


def measure(size: str, names: list[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each part by its name, or why it could not be measured: that does not end the others."""
    before = speed.gauge()
    for name in names:
        print(f"\n{name}:", flush=True)
        when, began, load, watch = _now(), time.monotonic(), os.getloadavg()[0], speed.Watch()
        try:
            figures = PARTS[name].measure(**options_of(name, size))
        except (Exception, SystemExit) as error:
            yield name, f"{type(error).__name__}: {error}"
            before = speed.gauge()
            continue
        took, others, after = time.monotonic() - began, watch.others(), speed.gauge()
        print(f"{name} took {took:.0f} s.", flush=True)
        yield (
            name,
            {
                "when": f"{when:%Y-%m-%dT%H:%M:%SZ}",
                "size": size,
                "took": took,
                "load": load,
                "others": others,
                "speed": [before, after],
                "figures": figures,
            },
        )
        before = after


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.run", description="Measure everything.")
    among = f"some of {', '.join(NAMES)}"
    parser.add_argument("--parts", nargs="+", choices=NAMES, default=list(NAMES), metavar="PART", help=among)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="only see that it works; nothing is kept")
    sizes.add_argument("--short", action="store_true", help="about ten minutes for all of it")
    parser.add_argument("--keep", action="store_true", help="renew the page from a short run, too")
    args = parser.parse_args(arguments)
    size = "quick" if args.quick else "short" if args.short else "full"
    began = time.monotonic()
    run: kept.Run = {"date": f"{_now():%Y-%m-%d}", "machine": machine(), "parts": {}}
    print(report.machine_line(run))
    if busy(run["machine"]):
        print("The machine is busy with other things: the numbers will be too.")
    failed = {}
    for name, entry in measure(size, args.parts):
        if isinstance(entry, str):
            failed[name] = entry
            print(f"{name} failed: {entry}", flush=True)
            continue
        run["parts"][name] = entry
        if not args.quick:
            kept.write(run)  # whatever becomes of the next
    show(run)
    print(f"It took {time.monotonic() - began:.0f} s.")
    if run["parts"] and not args.quick:
        print(f"Written to {kept.file_of(run)}.")
        if args.keep or not args.short:
            print(f"Renewed {report.renew(kept.completed(run))}.")
    for name, reason in failed.items():
        print(f"Not measured: {name}: {reason}")
    return 1 if failed else 0


def show(run: kept.Run) -> None:
    for name, entry in run["parts"].items():
        print(f"\n{PARTS[name].tables(entry['figures'])}")
    print(f"\n{check.shown(check.rows(run, all_bars=False))}\n")
    for line in report.warnings(run):
        print(line)
    for name in run["parts"]:
        for line in report.noise(run, name):
            print(f"{name}, noisy: {line}")


if __name__ == "__main__":
    sys.exit(main())
