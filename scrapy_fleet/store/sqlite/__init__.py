"""A crawl in one SQLite file, shared by the workers of one machine. The embedded default."""

from scrapy_fleet.store.sqlite.database import Database, crawl_name
from scrapy_fleet.store.sqlite.store import SqliteStore

__all__ = ["Database", "SqliteStore", "crawl_name"]
