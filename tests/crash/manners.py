"""How polite a crawl was, by what the site saw."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

from scrapy_fleet.ops.site import RunningSite

Span = tuple[float, float]


def arrivals_by_host(site: RunningSite) -> dict[str, list[float]]:
    """When each host was asked for a page."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in site.log():
        if line.event == "arrive" and line.path.startswith("/p/"):
            found[line.host].append(line.time)
    return found


def too_close(site: RunningSite, least: float) -> list[str]:
    """Pairs of requests to a host that were less than ``least`` seconds apart."""
    return [
        f"{host}: {later - earlier:.3f} s between two requests, at least {least:.3f} s are due"
        for host, times in arrivals_by_host(site).items()
        for earlier, later in itertools.pairwise(times)
        if later - earlier < least
    ]


def idle(site: RunningSite, most: float, but: Iterable[Span] = ()) -> list[str]:
    """Hosts that were not asked for longer than ``most`` seconds, though requests waited for them till the
    end; spells that touch one of the spans in ``but`` do not count."""
    spans = list(but)
    return [
        f"{host}: idle for {later - earlier:.3f} s, at most {most:.3f} s are due"
        for host, times in arrivals_by_host(site).items()
        for earlier, later in itertools.pairwise(times)
        if later - earlier > most and not any(earlier < end and start < later for start, end in spans)
    ]


def too_many(site: RunningSite, most: int) -> list[str]:
    """Hosts that had more than ``most`` requests in hand at a time."""
    running: dict[str, int] = defaultdict(int)
    peak: dict[str, int] = defaultdict(int)
    for line in site.log():
        running[line.host] += 1 if line.event == "arrive" else -1
        peak[line.host] = max(peak[line.host], running[line.host])
    return [f"{host}: {n} requests at a time, {most} are allowed" for host, n in peak.items() if n > most]
