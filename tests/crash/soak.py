"""``python -m tests.crash.soak --rounds 200``: the kill test, on ever other sites and at other moments."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

from tests.crash.rounds import Verdict, a_shape, kill_rounds

ROUNDS_A_CRAWL = 5


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often to kill (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the first crawl; each has its own (1)")
    parser.add_argument("--pages", type=int, default=400, help="of each site (400)")
    args = parser.parse_args()
    total, began, seed = Verdict(), time.monotonic(), args.seed
    while total.rounds < args.rounds:
        total += _crawl(seed, min(ROUNDS_A_CRAWL, args.rounds - total.rounds), args.pages)
        seed += 1
        _progress(total, args.rounds)
    _summary(total, seed - args.seed, time.monotonic() - began)
    return 1 if total.wrong else 0


def _crawl(seed: int, rounds: int, pages: int) -> Verdict:
    shape = a_shape("tree" if seed % 2 else "random", seed, pages)
    with tempfile.TemporaryDirectory(prefix="fleet-soak-") as folder:
        try:
            verdict = kill_rounds(Path(folder), shape, seed, rounds)
        except (AssertionError, OSError) as error:
            verdict = Verdict(rounds=rounds, pages=pages, wrong=[f"{type(error).__name__}: {error}"])
    verdict.wrong = [f"seed {seed}, {shape.kind}: {problem}" for problem in verdict.wrong]
    return verdict


def _progress(total: Verdict, rounds: int) -> None:
    line = (
        f"round {total.rounds} of {rounds}: {total.kills} kills, {total.pages} pages, {total.lost} lost, "
        f"{total.repeated} repeated (at most {total.bound} may be), {len(total.wrong)} violations"
    )
    if sys.stdout.isatty():
        print(f"\r\033[K{line}", end="", flush=True)
    else:
        print(line, flush=True)


def _summary(total: Verdict, crawls: int, seconds: float) -> None:
    if sys.stdout.isatty():
        print()
    numbers = [field.name for field in fields(Verdict) if field.name != "wrong"]
    print()
    print(f"| crawls | {' | '.join(numbers)} | violations | minutes |")
    print(f"|{' ---: |' * (len(numbers) + 3)}")
    values = " | ".join(f"{getattr(total, name):,}" for name in numbers)
    print(f"| {crawls} | {values} | {len(total.wrong)} | {seconds / 60:.1f} |")
    for problem in total.wrong:
        print(f"\nVIOLATION: {problem}")


if __name__ == "__main__":
    sys.exit(main())
