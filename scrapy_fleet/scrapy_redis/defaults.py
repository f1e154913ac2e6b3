"""What applies where a project says nothing; the names and values are those of scrapy-redis."""

from __future__ import annotations

from typing import Any

import redis

DUPEFILTER_KEY = "dupefilter:%(timestamp)s"
"""Of a duplicate filter that is used alone."""

PIPELINE_KEY = "%(spider)s:items"

STATS_KEY = "%(spider)s:stats"

REDIS_CLS = redis.StrictRedis
REDIS_ENCODING = "utf-8"
REDIS_PARAMS: dict[str, Any] = {
    "socket_timeout": 30,
    "socket_connect_timeout": 30,
    "encoding": REDIS_ENCODING,
}
if int(redis.__version__.partition(".")[0]) < 6:  # newer ones do so anyway, and warn of it
    REDIS_PARAMS["retry_on_timeout"] = True
REDIS_CONCURRENT_REQUESTS = 16

SCHEDULER_QUEUE_KEY = "%(spider)s:requests"
SCHEDULER_QUEUE_CLASS = "scrapy_fleet.scrapy_redis.queue.PriorityQueue"
SCHEDULER_DUPEFILTER_KEY = "%(spider)s:dupefilter"
SCHEDULER_DUPEFILTER_CLASS = "scrapy_fleet.scrapy_redis.dupefilter.RFPDupeFilter"
SCHEDULER_PERSIST = False
START_URLS_KEY = "%(name)s:start_urls"
START_URLS_AS_SET = False
START_URLS_AS_ZSET = False
MAX_IDLE_TIME = 0
