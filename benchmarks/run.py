"""All measurements: ``python -m benchmarks.run`` (or ``make bench``), about an hour on two cores.

Prints the tables, writes ``benchmarks/results/<date>.json`` and renews the tables of ``docs/benchmarks.md``.
The machine should do nothing else meanwhile. ``--quick`` only sees that everything works and keeps nothing.
"""

from __future__ import annotations

import argparse
import datetime
import time
from typing import Any

from benchmarks import crawl, fleet, manners, queue, report, seen
from benchmarks.measure import busy, machine


def measure(quick: bool, pages: int, rounds: int, parts: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {"date": datetime.date.today().isoformat(), "machine": machine()}
    print(report.machine_line(results))
    if busy(results["machine"]):
        print("The machine is busy with other things: the numbers will be too.")
    if "queue" in parts:
        results["queue"] = queue.measure(**(queue.QUICK if quick else queue.FULL))
    if "crawl" in parts:
        results["crawl"] = crawl.measure(pages, rounds, list(crawl.VARIANTS), list(crawl.SITES))
    if "fleet" in parts:
        results["fleet"] = fleet.measure(**(fleet.QUICK if quick else fleet.FULL))
    if "manners" in parts:
        results["manners"] = manners.measure(**(manners.QUICK if quick else manners.FULL))
    if "seen" in parts:
        results["seen"] = seen.measure(**(seen.QUICK if quick else seen.FULL))
    return results


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.run", description="Measure everything.")
    parser.add_argument("--pages", type=int, default=1200, help="pages of a crawl")
    parser.add_argument("--rounds", type=int, default=5, help="how often each crawl is made")
    parser.add_argument("--parts", nargs="+", choices=list(report.PARTS), default=list(report.PARTS))
    parser.add_argument("--quick", action="store_true", help="only see that it works; nothing is kept")
    args = parser.parse_args(arguments)
    if args.quick:
        args.pages, args.rounds = crawl.QUICK_PAGES, 1
    began = time.monotonic()
    results = measure(args.quick, args.pages, args.rounds, args.parts)
    for name, part in report.measured(results):
        print(f"\n{part.tables(results[name])}\n")
    for line in [*report.goals(results), *report.warnings(results)]:
        print(line)
    print(f"It took {time.monotonic() - began:.0f} s.")
    if not args.quick:
        print(f"Written to {report.keep(results)} and {report.PAGE}.")


if __name__ == "__main__":
    main()
