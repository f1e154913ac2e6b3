"""A crawl of the site as users start it, by ``scrapy runspider``."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from scrapy_fleet.ops.site import RunningSite
from tests import forked
from tests.commands import environment

PATIENCE = 60.0
"""Seconds after which something is taken to hang; nothing waits that long unless it is wrong."""

SPIDER = """
import scrapy

class Site(scrapy.Spider):
    name = "site"

    async def start(self):
        yield scrapy.Request(self.start_url)

    def parse(self, response):
        yield {"page": response.css("#number::text").get()}
        yield from response.follow_all(css="a")
"""

SETTINGS: dict[str, Any] = {
    "ADDONS": json.dumps({"scrapy_fleet.Addon": 500}),
    "ITEM_PIPELINES": json.dumps({"scrapy_fleet.FleetPipeline": 900}),
    "LOG_LEVEL": "INFO",
    "REMOTE_CONTROL_ENABLED": 0,
    "TELNETCONSOLE_ENABLED": 0,
}


class Run:
    """A crawl on the command line, and what it writes to the screen."""

    def __init__(
        self,
        site: RunningSite,
        folder: Path,
        settings: dict[str, Any],
        *,
        paths: tuple[Path, ...] = (),
        largest_file: int | None = None,
        inside: tuple[str, ...] = (),
    ) -> None:
        """``inside``: a command that runs the crawl, with something changed around it."""
        (folder / "spider.py").write_text(SPIDER)
        command = ["scrapy", "runspider", "spider.py", "-a", f"start_url={site.start_url}"]
        for name, value in {**SETTINGS, **settings}.items():
            command += ["-s", f"{name}={value}"]
        out, into = os.pipe()
        place: dict[str, Any] = {"cwd": folder, "env": environment(*paths), "stdout": into, "stderr": into}
        self._process: forked.Forked | subprocess.Popen[bytes] = (
            subprocess.Popen([*inside, sys.executable, "-m", *command], **place)
            if inside or paths
            else forked.Forked(*command, **place)
        )
        os.close(into)
        self._out = os.fdopen(out, errors="replace")
        if largest_file is not None:
            self.limit_files(largest_file)
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        with self._out:
            for line in self._out:
                with self._more:
                    self._lines.append(line)
                    self._more.notify_all()

    @property
    def log(self) -> str:
        with self._more:
            return "".join(self._lines)

    def logged(self, what: str) -> None:
        """Wait until this is in the log."""
        with self._more:
            assert self._more.wait_for(lambda: any(what in line for line in self._lines), PATIENCE), (
                f"it did not log {what!r}: {''.join(self._lines)}"
            )

    def ended(self) -> str:
        """Wait until it has ended by itself; its log."""
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert "Traceback" not in self.log, self.log
        return self.log

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def limit_files(self, size: int) -> None:
        """No file may grow beyond this: as good as a full disk, without the right to fill one."""
        _, most = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, most))

    @property
    def errors(self) -> list[str]:
        """What was logged as an error or worse."""
        return [line for line in self.log.splitlines() if "] ERROR: " in line or "] CRITICAL: " in line]
