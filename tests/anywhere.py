"""A crawl on a store of any kind, for commands to look at and to change."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from scrapy import Request
from scrapy.utils.request import fingerprint

from scrapy_fleet.crawl.codec import describe
from scrapy_fleet.model import Entry, Lease, Override, Plan, Rule, SeenPlan, Worker
from scrapy_fleet.ops.cli import main
from scrapy_fleet.settings import open_store
from tests.commands import Crawl, entry
from tests.servers import required, shared_server, valkey_binary

KINDS = ["sqlite", "valkey"]


def page(url: str, host: str = "a.example", **fields: Any) -> Entry:
    """A stored request under the key that the scheduler gives it."""
    made = entry(url, host, **fields)
    own = {name: fields[name] for name in ("method", "body") if name in fields}
    digest = fingerprint(Request(url, **own))
    key = None if fields.get("dont_filter") else int.from_bytes(digest[:8], "big", signed=True)
    return Entry(made.slot, made.payload, made.priority, key, made.seed)


def pages(number: int, host: str = "a.example") -> list[Entry]:
    return [page(f"http://{host}/{n}", host) for n in range(number)]


class Anywhere(Crawl):
    """A crawl at a URL, with one worker that does what a test tells it."""

    def __init__(self, url: str, name: str, plan: Plan) -> None:
        self.store = open_store(url, name)  # type: ignore[assignment]
        self.worker = Worker("w-1", "here", 1)
        self.store.join(self.worker, plan, 60)
        self._seq = 0
        self.url, self.name = url, name

    def override(self, host: str = "a.example") -> Override | None:
        view = self.store.slot(host)
        return view and view.override

    def said(self, command: str, *words: str) -> str:
        """What a command about this crawl prints. (In this process: loading Scrapy takes long.)"""
        with redirect_stdout(io.StringIO()) as out:
            code = main([command, self.name, *words, "--url", self.url])
        assert code == 0
        return out.getvalue()

    def answer(self, command: str, *words: str) -> Any:
        """The same as data."""
        return json.loads(self.said(command, *words, "--json"))


@contextmanager
def a_crawl(kind: str, folder: Path, seen: SeenPlan | None = None) -> Iterator[Anywhere]:
    """Without delay, two requests at a time."""
    sqlite = kind == "sqlite"
    url = f"sqlite:{folder / 'crawls'}" if sqlite else shared_server(required(valkey_binary())).url
    made = Anywhere(
        url, f"{folder.name}-{time.monotonic_ns()}", Plan(rule=Rule(concurrency=2), seen=seen or SeenPlan())
    )
    yield made
    made.store.close()


def url_of(lease: Lease) -> str | None:
    return describe(lease.payload)["url"]
