"""A crawl on a Redis or Valkey server, shared by workers on any number of machines."""

from scrapy_fleet.store.redis.address import SCHEMES
from scrapy_fleet.store.redis.store import RedisStore

__all__ = ["SCHEMES", "RedisStore"]
