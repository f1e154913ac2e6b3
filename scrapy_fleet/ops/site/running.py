"""A site in a process of its own, and what its log says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import ProxyHandler, build_opener

from scrapy_fleet.ops.site.shape import Shape, Site


class LogLine(NamedTuple):
    """``arrive``: asked for; ``done``: answered; ``left``: the client went away before its answer."""

    time: float
    """The machine's monotonic clock: only differences mean something."""
    event: str
    host: str
    path: str
    status: int | None


def read_log(path: Path) -> Iterator[LogLine]:
    """The lines of a site's log, oldest first; what is half written is left for the next time."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                time, event, host, where, status = line.rstrip("\n").split("\t")
                yield LogLine(float(time), event, host, where, None if status == "-" else int(status))


class RunningSite:
    """A site that is being served, and how it judges the crawl."""

    def __init__(self, site: Site, log: Path, process: subprocess.Popen[str]) -> None:
        self.site = site
        self.log_path = log
        self.process = process
        self._opener = build_opener(ProxyHandler({}))

    @property
    def port(self) -> int:
        return self.site.port

    @property
    def start_url(self) -> str:
        return self.site.start_url

    def url(self, path: str) -> str:
        return self.site.url(path)

    def stats(self) -> dict[str, int]:
        """The counts so far.

        ``arrivals``, ``visits`` (pages answered with 200), ``pages`` (distinct ones),
        ``left`` (clients gone before their answer), ``status_200``, ``status_404``...
        """
        return self.wait()

    def wait(self, *, timeout: float = 60.0, **goal: int) -> dict[str, int]:
        """Wait until the counts are at least these, as in ``wait(pages=100)``; TimeoutError if not."""
        query = "&".join(f"{name}={least}" for name, least in goal.items())
        with self._opener.open(f"http://127.0.0.1:{self.port}/_stats?{query}", timeout=timeout) as response:
            counts: dict[str, int] = json.load(response)
        return counts

    def log(self) -> list[LogLine]:
        return list(read_log(self.log_path))

    def arrivals(self) -> Counter[str]:
        """How often each path was asked for, whatever came of it."""
        return Counter(line.path for line in read_log(self.log_path) if line.event == "arrive")

    def visits(self) -> Counter[str]:
        """How often each page was answered with 200."""
        return Counter(
            line.path
            for line in read_log(self.log_path)
            if line.event == "done" and line.status == 200 and line.path.startswith("/p/")
        )

    def lost(self) -> set[str]:
        """The pages that were never answered with 200."""
        return self.site.pages() - self.visits().keys()

    def repeats(self) -> int:
        """How many 200 answers went to pages that had been answered before."""
        return sum(count - 1 for count in self.visits().values())


@contextmanager
def running(shape: Shape, *, log: Path | None = None, port: int = 0) -> Iterator[RunningSite]:
    """Serve a site until the block ends. Without ``log`` its log goes away with it."""
    with tempfile.TemporaryDirectory(prefix="fleet-site-") as folder:
        path = Path(folder, "site.log") if log is None else log
        path.touch()
        command = [sys.executable, "-m", "scrapy_fleet.ops.site", shape.to_json(), "--end-with-parent"]
        command += ["--port", str(port), "--log", str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                if not ready:
                    raise RuntimeError(f"the site did not start: {' '.join(command)}")
                yield RunningSite(Site(shape, int(ready.split()[-1])), path, process)
            finally:
                process.kill()
