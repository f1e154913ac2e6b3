"""Documents that the workers of a crawl share."""

from __future__ import annotations

from scrapy_fleet.model import Paper
from scrapy_fleet.store.sqlite.database import Database


def ask(db: Database, name: str, worker: str, max_age: float, patience: float) -> Paper:
    now = db.now(db.crawl())
    row = db.connection.execute("SELECT * FROM paper WHERE name = ?", (name,)).fetchone()
    if row is not None and row["data"] is not None:
        age = max(0.0, now - row["written"])
        if age <= max_age:
            return Paper(row["data"], age)
    maker = None if row is None else row["maker"]
    if maker is None or now - row["asked"] >= patience:
        db.run("ask_paper", paper=name, maker=worker, now=now)
        maker = worker
    return Paper(mine=maker == worker)


def write(db: Database, name: str, data: bytes) -> None:
    db.run("write_paper", paper=name, data=data, now=db.now(db.crawl()))
