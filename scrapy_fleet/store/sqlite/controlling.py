"""Telling the fleet what to do, and forgetting a crawl."""

from __future__ import annotations

from scrapy_fleet.errors import CrawlInUse
from scrapy_fleet.model import Mode
from scrapy_fleet.store.sqlite import seen
from scrapy_fleet.store.sqlite.database import Database, decode_plan
from scrapy_fleet.store.sqlite.treating import write_rules


def set_mode(db: Database, mode: Mode) -> None:
    db.connection.execute("UPDATE crawl SET mode = ?", (mode,))


def start_again(db: Database, num: int, now: float) -> None:
    """A worker has come: a stop was for those that were there before, if none of them is left."""
    if not any_alive(db, now, but=num):
        db.connection.execute("UPDATE crawl SET mode = 'run' WHERE mode = 'stop'")


def begin_anew(db: Database) -> None:
    """Clear all that a new run forgets, but for what was seen."""
    db.run("new_run")
    for table in ("entry", "slot", "stat", "state"):
        db.connection.execute(f"DELETE FROM {table}")


def clear(db: Database) -> None:
    if any_alive(db, db.now(db.crawl())):
        raise CrawlInUse(CrawlInUse.__doc__)
    begin_anew(db)
    seen.forget_all(db, None)
    set_mode(db, "run")
    # With the numbers last given: that no worker ever came is what makes a crawl new.
    items = ("item", "item_group", "item_taken")
    for table in (*items, "worker", "sqlite_sequence", "override", "paper", "producer"):
        db.connection.execute(f"DELETE FROM {table}")
    write_rules(db, decode_plan(db.crawl()["plan"]))


def any_alive(db: Database, now: float, but: int = -1) -> bool:
    sql = "SELECT EXISTS (SELECT 1 FROM worker WHERE deadline > :now AND num != :but)"
    return bool(db.value(sql, now=now, but=but))
