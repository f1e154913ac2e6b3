"""What a crawl in memory has met."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from scrapy_fleet import filters, seen
from scrapy_fleet.errors import CrawlInUse
from scrapy_fleet.model import Entry, SeenPlan, SeenView
from scrapy_fleet.store.base import CONVERTED_IN_USE


class MemorySeen:
    """The verbs of the store protocol that are about keys."""

    def __init__(self, crawl: str, clock: Callable[[], float]) -> None:
        self.crawl = crawl
        self._clock = clock
        self._plan_seen: SeenPlan | None = None
        self._forget_seen(None)

    def _forget_seen(self, plan: SeenPlan | None) -> None:
        """Nothing is seen any more, and the filter is another, or yet to be settled."""
        self._plan_seen = plan
        self._filter = filters.in_memory(plan or SeenPlan())

    def _check_seen(self, plan: SeenPlan) -> None:
        if self._plan_seen is not None:
            seen.check(self._plan_seen, plan, self.crawl)

    def _settle_seen(self, plan: SeenPlan) -> None:
        if self._plan_seen is None:
            self._forget_seen(plan)
        elif isinstance(self._filter, filters.Rolling):
            self._plan_seen = self._filter.plan = plan

    def use_seen(self, plan: SeenPlan) -> None:
        self._check_seen(plan)
        self._settle_seen(plan)

    def _settle_for(self, entries: tuple[Entry, ...], marks: tuple[int, ...]) -> None:
        """Keys come before any worker did."""
        if self._plan_seen is None and (marks or any(entry.key is not None for entry in entries)):
            self.use_seen(SeenPlan())

    def _meet_keys(self, keys: Iterable[int], now: float) -> int:
        return sum(self._filter.add(key, now) for key in keys)

    def seen(self, keys: tuple[int, ...]) -> tuple[bool, ...]:
        return tuple(key in self._filter for key in keys)

    def mark(self, keys: tuple[int, ...]) -> int:
        if self._plan_seen is None:
            self.use_seen(SeenPlan())
        return self._meet_keys(keys, self._clock())

    def forget(self, keys: tuple[int, ...]) -> int:
        return sum(map(self._filter.forget, keys))

    def seen_info(self) -> SeenView:
        return SeenView() if self._plan_seen is None else self._filter.view(self._clock())

    def seen_keys(self, cursor: str = "", limit: int = 1000) -> tuple[str, list[int]]:
        keys = sorted(self._filter)
        first = int(cursor or 0)
        page = keys[first : first + limit]
        return str(first + limit) if first + limit < len(keys) else "", page

    def convert(self, plan: SeenPlan) -> int:
        if self._in_use():
            raise CrawlInUse(CONVERTED_IN_USE)
        keys = [] if plan.kind == "off" else sorted(self._filter)
        self._forget_seen(plan)
        return self._meet_keys(keys, self._clock())

    def bloom_blocks(self, cursor: str = "", limit: int = 64) -> tuple[str, list[tuple[int, bytes]]]:
        if not isinstance(self._filter, filters.Bloom):
            return "", []
        after = int(cursor or -1)
        numbers = sorted(number for number in self._filter.blocks if number > after)
        page = list(itertools.islice(numbers, limit))
        more = str(page[-1]) if len(numbers) > limit else ""
        return more, [(number, bytes(self._filter.blocks[number])) for number in page]

    def load_bloom(self, plan: SeenPlan, blocks: list[tuple[int, bytes]], count: int) -> None:
        self.use_seen(plan)
        assert isinstance(self._filter, filters.Bloom)
        self._filter.merge(blocks, count)

    def _in_use(self) -> bool:
        raise NotImplementedError
