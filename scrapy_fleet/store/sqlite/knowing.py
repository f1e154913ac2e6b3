"""The verbs of the store protocol that are about keys, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from scrapy_fleet.errors import CrawlInUse
from scrapy_fleet.model import SeenPlan, SeenView
from scrapy_fleet.store.base import CONVERTED_IN_USE
from scrapy_fleet.store.sqlite import controlling, seen
from scrapy_fleet.store.sqlite.database import Database

MARKED_AT_ONCE = 20_000


class Knowing:
    _db: Database

    def seen(self, keys: tuple[int, ...]) -> tuple[bool, ...]:
        with self._db.read():
            return seen.has(self._db, self._db.crawl(), keys)

    def seen_info(self) -> SeenView:
        with self._db.read():
            return seen.view(self._db, self._db.crawl())

    def seen_keys(self, cursor: str = "", limit: int = 1000) -> tuple[str, list[int]]:
        with self._db.read():
            return seen.page(self._db, self._db.crawl(), cursor, limit)

    def bloom_blocks(self, cursor: str = "", limit: int = 64) -> tuple[str, list[tuple[int, bytes]]]:
        with self._db.read():
            return seen.blocks_page(self._db, cursor, limit)

    def use_seen(self, plan: SeenPlan) -> None:
        with self._db.write():
            seen.settle(self._db, self._db.crawl(), plan)

    def mark(self, keys: tuple[int, ...]) -> int:
        return sum(self._mark(keys[at : at + MARKED_AT_ONCE]) for at in range(0, len(keys), MARKED_AT_ONCE))

    def _mark(self, keys: Sequence[int]) -> int:
        db = self._db
        with db.write():
            crawl = db.crawl()
            if seen.settled(crawl) is None:
                seen.settle(db, crawl, SeenPlan())
            met = seen.meet(db, crawl, keys)
            db.connection.execute("UPDATE crawl SET seen = seen + ?", (met.grown,))
            return met.new

    def forget(self, keys: tuple[int, ...]) -> int:
        db = self._db
        forgotten = 0
        for at in range(0, len(keys), MARKED_AT_ONCE):
            with db.write():
                some = seen.forget(db, db.crawl(), keys[at : at + MARKED_AT_ONCE])
                db.connection.execute("UPDATE crawl SET seen = seen - ?", (some,))
                forgotten += some
        return forgotten

    def convert(self, plan: SeenPlan) -> int:
        db = self._db
        with db.write():
            crawl = db.crawl()
            if controlling.any_alive(db, db.now(crawl)):
                raise CrawlInUse(CONVERTED_IN_USE)
            return seen.convert(db, crawl, plan)

    def load_bloom(self, plan: SeenPlan, blocks: list[tuple[int, bytes]], count: int) -> None:
        db = self._db
        with db.write():
            seen.settle(db, db.crawl(), plan)
            seen.load_blocks(db, plan, blocks, count)
