"""Spiders run in several ways at the same time, such as with stock Scrapy and with the add-on."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.fleet import Fleet, Worker
from tests.special_site import OTHER_HOST, Site
from tests.spiders.base import SiteSpider

STOCK: dict[str, Any] = {"ADDONS": {}, "ITEM_PIPELINES": {}}


@dataclass
class Seen:
    """What a run came to: what the site was asked for, the stats, and what was logged of repeats."""

    visits: Counter[str]
    stats: dict[str, Any]
    repeats: list[str]

    def count(self, what: str) -> int:
        return int(self.stats.get(f"count/{what}", 0))

    @property
    def repeated(self) -> Counter[str]:
        """What was logged of repeats, but not on which page: that depends on which one came first."""
        return Counter(re.sub(r"\(referer: \S+\)", "(referer)", line) for line in self.repeats)

    @property
    def filtered(self) -> int:
        return int(self.stats.get("dupefilter/filtered", 0))


class Crawls:
    _numbers = itertools.count(1)

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder

    def run(self, spider: type[SiteSpider], *ways: dict[str, Any]) -> list[Seen]:
        """Run it in these ways, all at the same time."""
        started = [self._start(spider, settings) for settings in ways]
        return [self._seen(*one) for one in started]

    def both(self, spider: type[SiteSpider], **settings: Any) -> tuple[Seen, Seen]:
        """Stock Scrapy, and the add-on."""
        stock, fleet = self.run(spider, {**settings, **STOCK}, settings)
        assert fleet.visits == stock.visits
        assert fleet.filtered == stock.filtered
        return stock, fleet

    def _start(self, spider: type[SiteSpider], settings: dict[str, Any]) -> tuple[str, Worker]:
        name = f"run-{next(self._numbers)}"
        folder = self._folder / name
        folder.mkdir()
        base, other = self._site.base(name), self._site.base(name, OTHER_HOST)
        return name, Fleet(folder, spider, base=base, other=other, settings=settings).start()

    def _seen(self, name: str, worker: Worker) -> Seen:
        stats = worker.ended()
        assert stats["finish_reason"] == "finished"
        assert "log_count/ERROR" not in stats, worker.text()
        lines = (line.partition("] ")[2] for line in worker.text().replace(name, "RUN").splitlines())
        repeats = [line for line in lines if "Filtered duplicate request" in line]
        return Seen(Counter(str(visit) for visit in self._site.visits(name)), stats, repeats)
