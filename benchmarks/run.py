"""All measurements: ``python -m benchmarks.run`` (``make bench-full``), or fewer of each with ``--short``
(``make bench``, about ten minutes on two cores).

A full run writes ``benchmarks/results/<date>.json`` and renews ``docs/benchmarks.md`` and its pictures. A short one
writes ``benchmarks/results/<date>-short.json`` and leaves the page as it is, unless ``--keep`` is given.
The machine should do nothing else meanwhile. ``--quick`` only sees that everything works and keeps nothing.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time

from benchmarks import check, kept, report, speed
from benchmarks.measure import busy, machine
from benchmarks.parts import NAMES, PARTS, options_of


def measure(size: str, names: list[str]) -> kept.Run:
    here = machine()
    run: kept.Run = {"date": f"{_now():%Y-%m-%d}", "machine": here, "parts": {}}
    print(report.machine_line(run))
    if busy(here):
        print("The machine is busy with other things: the numbers will be too.")
    before = speed.gauge()
    for name in names:
        print(f"\n{name}:", flush=True)
        when, began, load, watch = _now(), time.monotonic(), os.getloadavg()[0], speed.Watch()
        figures = PARTS[name].measure(**options_of(name, size))
        took, others, after = time.monotonic() - began, watch.others(), speed.gauge()
        run["parts"][name] = {
            "when": f"{when:%Y-%m-%dT%H:%M:%SZ}",
            "size": size,
            "took": took,
            "load": load,
            "others": others,
            "speed": [before, after],
            "figures": figures,
        }
        print(f"{name} took {took:.0f} s.", flush=True)
        before = after
    return run


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.run", description="Measure everything.")
    parser.add_argument(
        "--parts", nargs="+", choices=NAMES, default=list(NAMES), metavar="PART", help=_among()
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="only see that it works; nothing is kept")
    size.add_argument("--short", action="store_true", help="about ten minutes for all of it")
    parser.add_argument("--keep", action="store_true", help="renew the page from a short run, too")
    args = parser.parse_args(arguments)
    began = time.monotonic()
    run = measure("quick" if args.quick else "short" if args.short else "full", args.parts)
    show(run)
    print(f"It took {time.monotonic() - began:.0f} s.")
    if not args.quick:
        print(f"Written to {kept.write(run)}.")
    if args.keep or not (args.quick or args.short):
        print(f"Renewed {report.renew(kept.newest(short=args.keep))}.")


def show(run: kept.Run) -> None:
    for name, entry in run["parts"].items():
        print(f"\n{PARTS[name].tables(entry['figures'])}")
    print(f"\n{check.shown(check.rows(run, all_bars=False))}\n")
    for line in report.warnings(run):
        print(line)
    for name in run["parts"]:
        for line in report.noise(run, name):
            print(f"{name}, noisy: {line}")


def _among() -> str:
    return f"some of {', '.join(NAMES)}"


if __name__ == "__main__":
    main()
