"""Items: reading them, and handing them to groups of consumers."""

from __future__ import annotations

import sqlite3

from scrapy_fleet.model import ItemGroup
from scrapy_fleet.store.base import MAX_ITEMS
from scrapy_fleet.store.sqlite.changes import text
from scrapy_fleet.store.sqlite.database import Database


class ItemVerbs:
    """The part of the contract that is about items."""

    _db: Database

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        with self._db.read():
            return _pairs(self._db.run("items", after=after, limit=limit))

    def take_items(
        self, group: str, consumer: str, limit: int = 100, ttl: float = 60.0
    ) -> list[tuple[int, bytes]]:
        db, limit = self._db, min(limit, MAX_ITEMS)
        with db.write():
            now = db.now(db.crawl())
            db.run("make_group", group=group)
            again = _pairs(db.run("items_again", group=group, consumer=consumer, old=now - ttl, limit=limit))
            last = db.value("SELECT last FROM item_group WHERE name = :of", of=group)
            new = _pairs(db.run("items", after=last, limit=limit - len(again)))
            taken = [*again, *new]
            numbers = text([number for number, _ in taken])
            db.run("take_items", group=group, consumer=consumer, numbers=numbers, now=now)
            if new:
                db.run("move_group", group=group, last=new[-1][0])
            return taken

    def ack_items(self, group: str, numbers: tuple[int, ...]) -> int:
        with self._db.write():
            return self._db.run("ack_items", group=group, numbers=text(numbers)).rowcount

    def item_groups(self) -> list[ItemGroup]:
        with self._db.read():
            return [ItemGroup(r["name"], r["left"], r["taken"]) for r in self._db.run("item_groups")]

    def drop_item_group(self, group: str) -> bool:
        with self._db.write():
            execute = self._db.connection.execute
            execute("DELETE FROM item_taken WHERE grp = ?", (group,))
            return execute("DELETE FROM item_group WHERE name = ?", (group,)).rowcount > 0

    def trim_items(self) -> int:
        removed = 0
        while True:  # in pieces, so that the crawl's commits get their turns
            with self._db.write():
                some = self._db.run("trim_items", most=MAX_ITEMS).rowcount
            removed += some
            if some < MAX_ITEMS:
                return removed


def total_of(db: Database) -> int:
    """How many items were ever kept."""
    return int(db.value("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'item'"))


def _pairs(rows: sqlite3.Cursor) -> list[tuple[int, bytes]]:
    return [(r["id"], r["payload"]) for r in rows]
