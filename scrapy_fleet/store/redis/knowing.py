"""The verbs of the store protocol that are about keys, on Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from scrapy_fleet import seen
from scrapy_fleet.errors import CrawlInUse
from scrapy_fleet.model import SeenPlan, SeenView
from scrapy_fleet.store.base import CONVERTED_IN_USE
from scrapy_fleet.store.redis import packing
from scrapy_fleet.store.redis.server import new_id

MARKED_AT_ONCE = 1000


class Knowing:
    """Each call is small, so that none holds the server for long."""

    _asked = SeenPlan()
    """How keys are to be known; what a server that knows them otherwise is told apart from."""

    def _run(self, verb: str, *args: bytes | str | float) -> list[Any]:
        raise NotImplementedError

    def seen(self, keys: tuple[int, ...]) -> tuple[bool, ...]:
        answers = (self._run("seen", self._packed(some))[0] for some in _pieces(keys))
        return tuple(bool(known) for answer in answers for known in answer)

    def _packed(self, keys: Iterable[int]) -> bytes:
        # What is asked for is what the crawl has: it would have been refused.
        return packing.marks(keys, bloom=self._asked.kind == "bloom")

    def use_seen(self, plan: SeenPlan) -> None:
        self._asked = plan
        self._run("use_seen", new_id(), packing.seen_plan(plan))

    def mark(self, keys: tuple[int, ...]) -> int:
        plan = packing.seen_plan(SeenPlan())
        return sum(self._run("mark", new_id(), plan, self._packed(some))[0] for some in _pieces(keys))

    def forget(self, keys: tuple[int, ...]) -> int:
        return sum(self._run("forget", packing.marks(some))[0] for some in _pieces(keys))

    def seen_info(self) -> SeenView:
        found = self._run("seen_info")
        if not found or not found[0]:
            return SeenView()
        packed, count, size, generations, oldest = found
        plan = packing.read_seen_plan(packed)
        if plan.kind == "bloom":
            return seen.view_bloom(plan, count, size)
        if plan.kind == "rolling":
            age = float(oldest) if oldest else None
            return SeenView(plan, count, size, generations=generations, oldest=age)
        return SeenView(plan, count, size)

    def seen_keys(self, cursor: str = "", limit: int = 1000) -> tuple[str, list[int]]:
        epoch, _, bucket = (cursor or "0:0").partition(":")
        epoch, bucket, keys = self._run("seen_keys", epoch, bucket, limit)
        more = "" if epoch == b"0" else f"{int(epoch)}:{bucket}"
        return more, list(map(int, keys))

    def convert(self, plan: SeenPlan) -> int:
        count, packed = self.seen_info().count, packing.seen_plan(plan)
        try:
            if self._run("convert", "begin", packed)[0]:
                cursor, more = "", True
                while more:
                    cursor, keys = self.seen_keys(cursor, MARKED_AT_ONCE)
                    marks = packing.marks(keys, bloom=plan.kind == "bloom")
                    self._run("convert", "copy", packed, marks)
                    more = cursor != ""
                self._run("convert", "end", packed)
        except CrawlInUse:
            raise CrawlInUse(CONVERTED_IN_USE) from None
        self._asked = plan
        while self._run("clear", "go on")[0]:
            pass  # what was there before is deleted
        return 0 if plan.kind == "off" else count

    def bloom_blocks(self, cursor: str = "", limit: int = 64) -> tuple[str, list[tuple[int, bytes]]]:
        info = self.seen_info()
        if info.plan is None or info.plan.kind != "bloom":
            return "", []
        last = seen.layers(info.plan, info.layers)[-1]
        first, end = int(cursor or 0), last.first + last.blocks
        numbers = range(first, min(first + limit, end))
        found = self._run("read_blocks", first, len(numbers))[0]
        page = [(number, bits) for number, bits in zip(numbers, found, strict=True) if bits]
        return str(first + limit) if first + limit < end else "", page

    def load_bloom(self, plan: SeenPlan, blocks: list[tuple[int, bytes]], count: int) -> None:
        self.use_seen(plan)
        flat = [part for number, bits in blocks for part in (number, bits)]
        self._run("load_blocks", count, *flat)


def _pieces(keys: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    rest = iter(keys)
    while some := tuple(islice(rest, MARKED_AT_ONCE)):
        yield some
