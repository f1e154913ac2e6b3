"""The rules of the sites that a worker has met lately. Broad crawls meet many: it is bounded."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scrapy_fleet.crawl.robots_paper import Fetched

if TYPE_CHECKING:
    from scrapy.robotstxt import RobotParser

MEMORY = 4 * 1024 * 1024
"""Bytes of robots.txt whose rules a worker keeps in memory; sites that were not met for long go first."""
LONGEST = 86400.0
"""No site can ask for more seconds between two requests."""


class Robots:
    """The rules of a site, in a worker's memory."""

    def __init__(self, parser: RobotParser | None, fetched: Fetched, good_for: float) -> None:
        self.parser = parser
        """None: they are not known, the site is left alone."""
        self.failed = fetched.failed
        self.until = time.monotonic() + good_for
        self.size = 1024 + len(fetched.body or b"")
        self.distance = 0.0
        """The least distance between requests, in seconds, that they ask for."""
        self.told: dict[str, int] = {}
        """The slots of which the store was told this, and how many commits had been made until then."""


class Memory:
    """The sites that a worker has met lately."""

    def __init__(self, size: int = MEMORY) -> None:
        self._robots: OrderedDict[str, Robots] = OrderedDict()
        self._left = self._most = size

    def __iter__(self) -> Iterator[Robots]:
        return iter(self._robots.values())

    def get(self, site: str) -> Robots | None:
        """What is known of a site and still good."""
        robots = self._robots.get(site)
        if robots is None or robots.until < time.monotonic():
            return None
        self._robots.move_to_end(site)
        return robots

    def put(self, site: str, robots: Robots) -> Robots | None:
        """Keep it; what was known before."""
        before = self._robots.pop(site, None)
        if before is not None:
            self._left += before.size
        self._robots[site] = robots
        self._left -= robots.size
        while self._left < 0 and len(self._robots) > 1:
            self._left += self._robots.popitem(last=False)[1].size
        return before

    def clear(self) -> None:
        self._robots.clear()
        self._left = self._most


def distance_of(parser: RobotParser, agent: str) -> float:
    """The least distance between requests, in seconds, that a robots.txt asks for: its ``Crawl-delay`` or
    its ``Request-rate``, whichever is longer. 0: none, or the parser does not know."""
    rate = _asked(parser, "request_rate", agent)
    wishes = [_asked(parser, "crawl_delay", agent), rate and rate.seconds / max(1, rate.requests)]
    return max((min(float(wish), LONGEST) for wish in wishes if wish and wish > 0), default=0.0)


def _asked(parser: RobotParser, name: str, agent: str) -> Any:
    """Scrapy's parsers tell only part of it, and only since 2.18; the library behind one may tell more."""
    for teller in (parser, getattr(parser, "rp", None)):
        if callable(method := getattr(teller, name, None)):
            return method(agent)
    return None
