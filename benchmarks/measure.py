"""What the measurements share: fresh processes and folders, medians, tables, and the machine's name."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NOISY = 0.15
"""A spread beyond this share of the median is worth a warning."""


class Spread(NamedTuple):
    """Several measurements of one thing."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))

    @property
    def noisy(self) -> bool:
        return self.high - self.low > NOISY * self.median

    def show(self, digits: int = 0, unit: str = "") -> str:
        if self.low == self.high:
            return f"{self.median:,.{digits}f}{unit}"
        return f"{self.median:,.{digits}f}{unit} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A fresh folder on a disk: /tmp is often in memory, where every durable write is cheap."""
    disk = Path("/var/tmp")
    return tempfile.TemporaryDirectory(
        prefix="fleet-bench-", dir=disk if os.access(disk, os.W_OK) else None, ignore_cleanup_errors=True
    )


def run_worker(
    job: dict[str, Any], folder: str, python: str = sys.executable, module: str = "benchmarks.worker"
) -> dict[str, Any]:
    """Crawl in a fresh process (see ``benchmarks.worker``); what it measured of itself."""
    done = subprocess.run(
        [python, "-m", module, json.dumps(job)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=None if python == sys.executable else subprocess.PIPE,  # what others warn of is theirs
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"The crawl ended with code {done.returncode}: {job}\n{done.stderr or ''}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def start_worker(job: dict[str, Any], folder: str, python: str = sys.executable) -> subprocess.Popen[bytes]:
    """The same without waiting for it; what it prints goes to ``out-PID`` and ``log`` in its folder."""
    out = Path(folder, f"out-{uuid.uuid4().hex}")
    with out.open("wb") as printed, Path(folder, "log").open("ab") as log:
        process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", json.dumps(job)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=printed,
            stderr=log,
        )
    out.rename(out.with_name(f"out-{process.pid}"))
    return process


def peak_memory() -> int:
    """The most memory this process had, in bytes (``ru_maxrss`` would begin with that of its parent)."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it is; numbers to the right."""
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join([first, *rest])} |"

    rule = ["-" * width if not i else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(headers), line(rule), *map(line, rows)])


class Goal(NamedTuple):
    """What a measurement should reach."""

    what: str
    value: float
    bar: float
    at_most: bool = False
    """The bar is the most there may be, not the least."""
    form: str = "{:.2f}x"
    """How value and bar are shown."""

    @property
    def reached(self) -> bool:
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    @property
    def short_by(self) -> float:
        """By which part of the bar it is missed; 0 if it is not, infinite where there should be none."""
        if self.reached:
            return 0.0
        return abs(self.value - self.bar) / self.bar if self.bar else math.inf

    @property
    def verdict(self) -> str:
        if self.reached:
            return "reached"
        return f"missed by {self.short_by:.0%}" if self.bar else "missed"

    @property
    def shown(self) -> str:
        return self.form.format(self.value)

    @property
    def shown_bar(self) -> str:
        return self.form.format(self.bar) + " at most" * self.at_most

    def show(self) -> str:
        return f"{self.what}: {self.shown} (goal {self.shown_bar}: {self.verdict})"


def machine() -> dict[str, Any]:
    """Where and with what it was measured, and how busy the machine was before."""
    with scratch() as folder:
        filesystem = _filesystem(folder)
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "filesystem": filesystem,
        "python": platform.python_version(),
        "scrapy": version("scrapy"),
        "twisted": version("twisted"),
        "queuelib": version("queuelib"),
        "sqlite": sqlite3.sqlite_version,
        "scrapy-fleet": _own_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def busy(machine: dict[str, Any]) -> bool:
    """Whether others used the processor before we began."""
    return bool(machine["load"] > 0.25 * machine["cores"])


def _own_version() -> str:
    from scrapy_fleet import __version__

    return __version__


def _cpu() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if "model name" not in told:  # as on ARM
            told = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    except OSError:
        told = ""
    found = re.search(r"^model name\s*: *(.+)", told, re.IGNORECASE | re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def _filesystem(folder: str) -> str:
    """The kind of the mount that a folder is on; empty where the system does not say."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    fitting = [(where, kind) for where, kind in mounts if f"{folder}/".startswith(where.rstrip("/") + "/")]
    return max(fitting, key=lambda mount: len(mount[0]), default=("", ""))[1]
