"""Runs the commands as users do, and makes crawls for them to look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.model import Batch, Entry, Lease, Outcome, Plan, Receipt, Rule, Worker
from scrapy_fleet.store.sqlite import SqliteStore
from tests import forked

ROOT = Path(__file__).parents[1]
FLEET = [sys.executable, "-m", "scrapy_fleet.ops.cli"]
SCRAPY_FLEET = [sys.executable, "-m", "scrapy", "fleet"]


def environment(*paths: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SCRAPY_", "NO_COLOR", "PYTHONPATH"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}


def run(
    command: list[str], *words: str, cwd: Path, paths: tuple[Path, ...] = (), given: str = ""
) -> subprocess.CompletedProcess[str]:
    python, minus_m, *rest = [*command, *words]
    if (python, minus_m) == (sys.executable, "-m") and not paths:
        return forked.run(*rest, cwd=cwd, env=environment(), given=given.encode())
    whole = {"cwd": cwd, "env": environment(*paths), "input": given, "timeout": 120}
    return subprocess.run([*command, *words], capture_output=True, text=True, **whole)  # type: ignore[call-overload,no-any-return]


def data(
    *words: str, cwd: Path, command: list[str] = FLEET, code: int = 0, paths: tuple[Path, ...] = ()
) -> Any:
    """What a command prints with ``--json``."""
    done = run(command, *words, "--json", cwd=cwd, paths=paths)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def entry_points(folder: Path) -> Path:
    """The entry points that pyproject.toml declares, as an installed package has them."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "fleet_under_test-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fleet-under-test\nVersion: 0\n")
    lines = [
        line
        for group, names in declared.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


class AnySpider(Spider):
    name = "any"

    def parse_item(self, response: Any) -> None: ...


CODEC = Codec(AnySpider())


def entry(url: str, host: str = "a.example", **fields: Any) -> Entry:
    """A stored request; ``priority`` and ``seed`` are the entry's, the other fields the request's."""
    place = {name: fields.pop(name) for name in ("priority", "seed") if name in fields}
    if "callback" in fields:
        fields["callback"] = getattr(CODEC._spider, fields["callback"])
    return Entry(slot=host, payload=CODEC.encode(Request(url, **fields)), key=hash(url), **place)


class Crawl:
    """A crawl in a file, with one worker that does what a test tells it."""

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        worker: Worker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.store = SqliteStore(path, name, clock=clock)
        self.worker = worker or Worker("w-1", "here", 1)
        self.store.join(self.worker, Plan(rule=Rule(concurrency=1000)), 60)
        self._seq = 0

    def commit(self, **fields: Any) -> Receipt:
        self._seq += 1
        return self.store.commit(Batch(worker=self.worker.id, seq=self._seq, **fields))

    def add(self, *entries: Entry) -> None:
        self.commit(adds=entries, seeded=True)

    def lease(self, want: int) -> tuple[Lease, ...]:
        return self.commit(want=want).leases

    def settle(self, leases: tuple[Lease, ...], dead: str | None = None) -> None:
        self.commit(outcomes=tuple(Outcome(lease.token, dead) for lease in leases))

    def leave(self, *, finish: bool = False) -> None:
        self.commit(leave=True, finish=finish)


def crawl(path: Path, name: str) -> Crawl:
    """A crawl in the middle: 2 waiting, 1 leased, 1 done, 2 dead."""
    made = Crawl(path, name)
    made.add(*(entry(f"http://a.example/{n}", callback="parse_item") for n in range(5)))
    made.add(entry("http://b.example/form", "b.example", method="POST", body=b"x"))
    first, second, third, _ = made.lease(4)
    made.settle((first,))
    made.settle((second, third), dead="its worker died 5 times")
    return made


def project(folder: Path, settings: str, spiders: str = "") -> Path:
    """A Scrapy project with these settings."""
    package = folder / "shop"
    package.mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (package / "__init__.py").touch()
    (package / "settings.py").write_text(f"SPIDER_MODULES = ['shop.spiders']\n{settings}\n")
    (package / "spiders.py").write_text(spiders)
    return folder


def a_crawler(spider: type[Spider] = AnySpider, **settings: Any) -> Crawler:
    """A crawler that has read its settings, add-ons included; it needs no reactor."""
    without = {"TWISTED_REACTOR": None, "TWISTED_REACTOR_ENABLED": False}
    quiet = {"REMOTE_CONTROL_ENABLED": False, "TELNETCONSOLE_ENABLED": False}
    crawler = Crawler(spider, Settings({**without, **quiet, **settings}))
    crawler._apply_settings()
    return crawler
