"""AUTOTHROTTLE_DEBUG: a line a response, as Scrapy's own extension writes it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from scrapy import Spider
from scrapy.http import Response

from scrapy_fleet import politeness
from scrapy_fleet.model import Auto, Lease, Plan, Sample
from scrapy_fleet.politeness import Manners

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# Under the name of Scrapy's extension: people have told their logging what to do with it.
logger = logging.getLogger("scrapy.extensions.throttle")

MOST_SLOTS = 10_000


class DebugLines:
    """The delays as this worker knows them: from where its first request in a slot found them, changed by
    the responses it has seen. With several workers, the store knows of more."""

    def __init__(self, settings: BaseSettings, plan: Plan) -> None:
        self.wanted = plan.auto is not None and settings.getbool("AUTOTHROTTLE_DEBUG")
        self._plan = plan
        self._manners: dict[str, Manners] = {}

    def log(self, lease: Lease, sample: Sample, response: Response, downloading: int, spider: Spider) -> None:
        plan, rule = self._plan, self._plan.rule_of(lease.slot)
        if plan.auto is None or sample.latency is None:
            return
        before = self._manners.pop(lease.slot, None) or self._first(lease, plan.auto)
        after = politeness.sampled(before, sample, plan, rule, 0.0)
        if len(self._manners) >= MOST_SLOTS:
            del self._manners[next(iter(self._manners))]
        self._manners[lease.slot] = Manners(auto=after.auto)
        old, new = (politeness.delay_of(each, plan, rule, None) for each in (before, after))
        logger.info(
            "slot: %(slot)s | conc:%(concurrency)2d | "
            "delay:%(delay)5d ms (%(delaydiff)+d) | "
            "latency:%(latency)5d ms | size:%(size)6d bytes",
            {
                "slot": lease.slot,
                "concurrency": downloading,
                "delay": new * 1000,
                "delaydiff": (new - old) * 1000,
                "latency": sample.latency * 1000,
                "size": len(response.body),
            },
            extra={"spider": spider},
        )

    def _first(self, lease: Lease, auto: Auto) -> Manners:
        """The crawl may have met the slot long before this worker came."""
        rule = self._plan.rule_of(lease.slot)
        start = max(rule.delay, auto.start)
        if rule.jitter >= 1 or math.isclose(lease.pace, start * (1 - rule.jitter)):
            return Manners()
        return Manners(auto=max(rule.delay, min(auto.most, lease.pace / (1 - rule.jitter))))
