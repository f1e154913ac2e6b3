"""Queues to name in SCHEDULER_DISK_QUEUE and SCHEDULER_START_DISK_QUEUE: see docs/queues.md."""

from scrapy_fleet.crawl.queues import RedisFifoQueue, RedisLifoQueue, SqliteFifoQueue, SqliteLifoQueue

__all__ = ["RedisFifoQueue", "RedisLifoQueue", "SqliteFifoQueue", "SqliteLifoQueue"]
