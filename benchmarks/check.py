"""Which bars are reached, and by how much others are missed: ``python -m benchmarks.check``.

Without a file, the newest measurement of each part counts, short or full; with ``--full``, only full ones. A
bar that was not measured is named as such. With ``--strict``, the exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import kept
from benchmarks.bars import BARS
from benchmarks.measure import Goal, table
from benchmarks.parts import PARTS


class Row(NamedTuple):
    what: str
    part: str
    asked: str
    goal: Goal | None = None
    """What was measured; None if it was not."""
    size: str = ""
    when: str = ""

    @property
    def command(self) -> str:
        return f"python -m benchmarks.{self.part}"

    @property
    def missed(self) -> bool:
        return self.goal is not None and not self.goal.reached

    def cells(self) -> list[str]:
        measured, verdict = (self.goal.shown, self.goal.verdict) if self.goal else ("", "not measured")
        return [self.what, measured, self.asked, verdict, f"`{self.command}`"]

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"what": self.what, "part": self.part, "command": self.command}
        if self.goal is None:
            return {**found, "asked": self.asked, "measured": None}
        return {
            **found,
            "asked": self.goal.bar,
            "at_most": self.goal.at_most,
            "measured": self.goal.value,
            "reached": self.goal.reached,
            "short_by": self.goal.short_by if math.isfinite(self.goal.short_by) else None,
            "size": self.size,
            "when": self.when,
        }


def rows(run: kept.Run, *, all_bars: bool = True) -> list[Row]:
    """Every bar with what was measured of it, in the order of the bars; then what has none of them."""
    measured = [
        (name, goal, entry)
        for name, entry in run["parts"].items()
        if name in PARTS
        for goal in PARTS[name].goals(entry["figures"])
    ]
    found: list[Row] = []
    used: set[int] = set()
    for bar in BARS:
        meant = [n for n, (name, goal, _) in enumerate(measured) if bar.means(name, goal.what)]
        found += [_row(*measured[n]) for n in meant]
        used.update(meant)
        if all_bars and not meant:
            found.append(Row(bar.what, bar.part, bar.asked))
    return found + [_row(*each) for n, each in enumerate(measured) if n not in used]


def _row(name: str, goal: Goal, entry: dict[str, Any]) -> Row:
    return Row(goal.what, name, goal.shown_bar, goal, entry["size"], entry["when"])


def shown(found: list[Row]) -> str:
    return table(["", "measured", "goal", "", "command"], [row.cells() for row in found])


def summary(found: list[Row]) -> str:
    missed = sum(row.missed for row in found)
    unknown = sum(row.goal is None for row in found)
    return f"{len(found) - missed - unknown} reached, {missed} missed, {unknown} not measured."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.check", description="Compare results with the bars."
    )
    parser.add_argument("file", nargs="?", type=Path, help="instead of the newest in benchmarks/results")
    parser.add_argument("--full", action="store_true", help="only full measurements")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    run = kept.read(args.file) if args.file else kept.newest(short=not args.full)
    found = rows(run)
    if args.json:
        print(json.dumps([row.as_json() for row in found], indent=1))
    else:
        print(shown(found))
        for name, entry in run["parts"].items():
            print(f"{name}: {entry['size']}, {entry['when'].replace('T', ' ').replace('Z', ' UTC')}")
        print(summary(found))
    return 1 if args.strict and any(row.missed for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
