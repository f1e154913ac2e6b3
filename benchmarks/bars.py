"""What the project set itself to reach, whether or not it was measured: the part that measures each bar, and
which of that part's goals are meant.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Bar(NamedTuple):
    what: str
    asked: str
    part: str
    pattern: str
    """Of what the part calls it; it may have several, as one for each server."""

    def means(self, part: str, what: str) -> bool:
        return part == self.part and re.search(self.pattern, what) is not None


BARS = (
    Bar("a crawl on SQLite, against Scrapy in memory", "2x", "crawl", "in memory, site 'links'"),
    Bar("the same, against JOBDIR on SQLite queues", "3x", "crawl", "JOBDIR on SQLite queues, site 'links'"),
    Bar("the same without known links, against Scrapy in memory", "0.95x", "crawl", "in memory, site 'flat'"),
    Bar(
        "a crawl on Redis, against scrapy-redis, 0, 1 and 5 ms away",
        "3x, 10x, 30x",
        "fleet",
        r"against scrapy-redis, \d ms",
    ),
    Bar("the same, with shared stats", "6x, 35x, 120x", "fleet", "against scrapy-redis, shared stats"),
    Bar("round trips a page", "0.2 at most", "fleet", "^round trips"),
    Bar("server CPU a page", "40 us at most", "fleet", "^server CPU a page, at"),
    Bar(
        "server CPU a page, against scrapy-redis", "40/370 at most", "fleet", "^server CPU a page, as a share"
    ),
    Bar("the scheduler alone, a new request, 0 and 1 ms away", "10x, 60x", "scheduler", "^scheduler alone"),
    Bar("two workers against one", "1.9x", "fleet", "^two workers"),
    Bar("8 hosts, 0.5 s delay each, 1 worker", "15.8/s", "pace", "8 hosts"),
    Bar("a pushed task, until its request goes out", "50 ms at most", "feeding", "^push to request"),
    Bar("memory of a waiting request in Redis", "1/4", "fleet", "^memory of a waiting request"),
    Bar("memory of a seen URL in Redis", "1/10", "fleet", "^memory of a seen URL"),
    Bar("lease and settle on SQLite, flushed", "10,000 a second", "queue", "lease and settle"),
    Bar("takeover after a killed worker", "the timeout + 1 s", "fleet", "^takeover"),
    Bar("cost a request as the frontier grows 100 times", "1.5x at most", "curves", "waiting$"),
    # And what was asked beyond the first list.
    Bar("cost a request as hosts become 100 times as many", "1.5x at most", "curves", "hosts$"),
    Bar("pages lost", "0", "loss", "pages lost"),
    Bar("pages repeated that no killed worker held", "0", "loss", "pages repeated"),
    Bar("gaps between requests to a host that are too small", "none", "pace", "gaps under"),
    Bar("a host limited to 8 at a time, of stock's rate", "93%", "manners", "of stock's rate"),
    Bar("1,000 hosts with a delay, of the permitted rate", "90%", "manners", "of the permitted rate"),
    Bar("a lease beside many hosts that wait", "1.5x at most", "manners", "^a lease beside"),
    Bar("200 idle workers, of the server's core", "5% at most", "fleet", "idle workers"),
    Bar("200 idle workers that are fed, of the server's core", "5% at most", "feeding", "idle workers"),
    Bar("speed kept beside a page of 10 s", "90%", "feeding", "^speed kept"),
    Bar("bytes a URL, exact on Redis", "11 at most", "seen", "^exact on Redis.*a URL$"),
    Bar("bytes a URL, bloom on Redis", "2 at most", "seen", "^bloom.* on Redis.*a URL$"),
    Bar("bytes a URL, exact on SQLite", "24 at most", "seen", "^exact on SQLite.*a URL$"),
    Bar("a new URL, when ten times as many are known", "1.5x at most", "seen", "a new URL at"),
    Bar("new URLs that a Bloom filter takes for known", "0.1% at most", "seen", "wrongly known$"),
    Bar("reachable pages missing after an import of a JOBDIR", "0", "jobdir", "missing after an import"),
)
