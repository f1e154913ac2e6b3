"""What the commands of the parts have in common: their sizes, and how they tell what they found."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import Goal


def parser(name: str, about: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(f"python -m benchmarks.{name}", description=about)
    size = found.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="only see that it works")
    size.add_argument("--short", action="store_true", help="as much as 'make bench' measures")
    found.add_argument("--json", type=Path, help="write what was measured to this file")
    return found


def size_of(
    args: argparse.Namespace, quick: dict[str, Any], short: dict[str, Any], full: dict[str, Any]
) -> dict[str, Any]:
    """The size that was asked for, to be altered."""
    return dict(quick if args.quick else short if args.short else full)


def tell(
    args: argparse.Namespace,
    results: dict[str, Any],
    tables: str,
    goals: Iterable[Goal],
    noise: Iterable[str],
) -> None:
    """Print it, and write it where that was asked for."""
    print(f"\n{tables}\n")
    for goal in goals:
        print(goal.show())
    for line in noise:
        print(f"noisy: {line}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
