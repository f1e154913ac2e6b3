"""How fast the machine is at this moment: a small fixed piece of work, before every part and after the last.

What others do on the machine, or on the one that it is a part of, makes all figures worse for a while. Ratios
within a round suffer less than others, but a reader should know.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import NOISY, scratch

LOOPS, LOOP = 12, 150_000
FLUSHES = 40
KINDS = ("processor", "disk")
Gauge = dict[str, float]
"""By kind; more is faster."""


def gauge() -> Gauge:
    """Millions of steps of a Python loop, and flushed commits of SQLite, a second; takes half of one."""
    return {"processor": 1e-6 * _loops(), "disk": _flushes()}


def _loops() -> float:
    times = []
    for _ in range(LOOPS):
        began = time.perf_counter()
        total = 0
        for number in range(LOOP):
            total += number & 7
        times.append(time.perf_counter() - began)
    return LOOP / statistics.median(times)


def _flushes() -> float:
    with scratch() as folder:
        database = sqlite3.connect(Path(folder, "speed.db"), isolation_level=None)
        database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (a);")
        times = []
        for number in range(FLUSHES):
            began = time.perf_counter()
            database.execute("INSERT INTO t VALUES (?)", (number,))
            times.append(time.perf_counter() - began)
        database.close()
    return 1 / statistics.median(times)


class Watch:
    """What others take of the processors while a part is measured."""

    def __init__(self) -> None:
        self._began, self._all, self._ours = time.monotonic(), _all_cpu(), _our_cpu()

    def others(self) -> float | None:
        """Cores that others kept busy; None where the system does not say."""
        took = time.monotonic() - self._began
        now = _all_cpu()
        if now is None or self._all is None or not took:
            return None
        return max(0.0, (now - self._all - (_our_cpu() - self._ours)) / took)


def _our_cpu() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _all_cpu() -> float | None:
    """Of all processes, and what the machine beneath took from this one."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        user, nice, system, _idle, _wait, _irq, _softirq, steal, *_ = map(int, line.split()[1:])
    except (OSError, ValueError):
        return None
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")


def best(gauges: Sequence[Gauge]) -> Gauge:
    return {kind: max(gauge[kind] for gauge in gauges) for kind in KINDS} if gauges else {}


def shares(gauges: Sequence[Gauge], of: Gauge) -> dict[str, tuple[float, float]]:
    """Of each kind, the lowest and the highest as a share of the best there was."""
    found = {}
    for kind, most in of.items():
        if values := [gauge[kind] / most for gauge in gauges]:
            found[kind] = (min(values), max(values))
    return found


def told(gauges: Sequence[Gauge]) -> list[str]:
    """What changed by more than it should within a run."""
    return [
        f"the {kind} ran at {low:.0%} to {high:.0%} of its best"
        for kind, (low, high) in shares(gauges, best(gauges)).items()
        if high - low > NOISY
    ]


def all_of(entries: Sequence[dict[str, Any]]) -> list[Gauge]:
    """The gauges of kept parts."""
    return [gauge for entry in entries for gauge in entry.get("speed", [])]
