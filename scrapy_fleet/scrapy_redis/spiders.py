"""Spiders that are fed from a Redis list, set or sorted set, under the names they have in scrapy-redis."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from scrapy import FormRequest, Request, Spider, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.spiders import CrawlSpider

from scrapy_fleet.addon import is_tool
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.crawl.spiders import Idle, request_of
from scrapy_fleet.crawl.tasks import Task
from scrapy_fleet.errors import Unreadable
from scrapy_fleet.scrapy_redis import connection, defaults
from scrapy_fleet.scrapy_redis.feeding import Feeder
from scrapy_fleet.scrapy_redis.utils import bytes_to_str
from scrapy_fleet.scrapy_redis.wiring import add_addon

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    _Spider = Spider
else:
    _Spider = object


class RedisMixin(_Spider):
    """Reads tasks from ``redis_key``. They go into the crawl whenever there is room, and are settled with
    the requests that :meth:`make_request_from_data` makes of them: a worker that dies loses none.

    It stays when there is nothing to do, until nothing has come for ``max_idle_time`` seconds (0: for ever).
    """

    redis_key: Any = None
    redis_batch_size: Any = None
    redis_encoding: Any = None
    max_idle_time: Any = None
    server: Any = None
    spider_idle_start_time: float = int(time.time())
    _reads = "list"

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        super().update_settings(settings)
        add_addon(settings)

    def start_requests(self) -> Iterable[Any]:
        """Requests of ``start_urls``, once per crawl. Tasks come by themselves."""
        for url in self.start_urls:
            yield Request(url, dont_filter=True)

    async def start(self) -> AsyncIterator[Any]:
        for each in self.start_requests():
            yield each

    def setup_redis(self, crawler: Crawler | None = None) -> None:
        """Read the settings, and begin to feed when the spider opens."""
        if self.server is not None:
            return
        crawler = crawler or getattr(self, "crawler", None)
        if crawler is None:
            raise ValueError("crawler is required")
        settings = crawler.settings
        key = self.redis_key
        if key is None:
            key = settings.get("REDIS_START_URLS_KEY", defaults.START_URLS_KEY)
        self.redis_key = key % {"name": self.name}
        if not self.redis_key.strip():
            raise ValueError("redis_key must not be empty")
        if self.redis_batch_size is None:
            self.redis_batch_size = settings.getint("CONCURRENT_REQUESTS", defaults.REDIS_CONCURRENT_REQUESTS)
        self.redis_batch_size = _whole(self.redis_batch_size, "redis_batch_size")
        if self.redis_encoding is None:
            self.redis_encoding = settings.get("REDIS_ENCODING", defaults.REDIS_ENCODING)
        if self.max_idle_time is None:
            self.max_idle_time = settings.get("MAX_IDLE_TIME_BEFORE_CLOSE", defaults.MAX_IDLE_TIME)
        self.max_idle_time = _whole(self.max_idle_time, "max_idle_time")
        if settings.getbool("REDIS_START_URLS_AS_SET", defaults.START_URLS_AS_SET):
            self._reads = "set"
        elif settings.getbool("REDIS_START_URLS_AS_ZSET", defaults.START_URLS_AS_ZSET):
            self._reads = "zset"
        if isinstance(domains := getattr(self, "allowed_domains", None), Iterator):
            # As in scrapy-redis' own examples, filter(None, ...): newer Scrapys read it again and again.
            self.allowed_domains = list(domains)
        self.server = connection.from_settings(settings)
        self.logger.info(
            "Reading start URLs from redis key '%s' (batch size: %s, encoding: %s)",
            *(self.redis_key, self.redis_batch_size, self.redis_encoding),
        )
        self._idle = Idle(crawler)
        self._feeder = Feeder(self, crawler)
        crawler.signals.connect(self._feeder.open, signals.spider_opened)
        # The idle signal is sent when the whole crawl has nothing to do.
        crawler.signals.connect(self.spider_idle, signals.spider_idle)

    # Reading by hand. The feeder moves tasks in a better way, unless these are overridden.

    def fetch_data(self, redis_key: str, batch_size: int) -> Any:
        """Take up to so many tasks; they are gone from the server then."""
        if self._reads == "set":
            return self.server.spop(redis_key, batch_size)
        read = self.pop_priority_queue if self._reads == "zset" else self.pop_list_queue
        return read(redis_key, batch_size)

    def count_size(self, redis_key: str) -> int:
        """How many tasks there are."""
        count = {"set": "scard", "zset": "zcard", "list": "llen"}[self._reads]
        return int(getattr(self.server, count)(redis_key))

    def pop_list_queue(self, redis_key: str, batch_size: int) -> Any:
        with self.server.pipeline() as pipe:
            pipe.lrange(redis_key, 0, batch_size - 1)
            pipe.ltrim(redis_key, batch_size, -1)
            return pipe.execute()[0]

    def pop_priority_queue(self, redis_key: str, batch_size: int) -> Any:
        with self.server.pipeline() as pipe:
            pipe.zrevrange(redis_key, 0, batch_size - 1)
            pipe.zremrangebyrank(redis_key, -batch_size, -1)
            return pipe.execute()[0]

    def next_requests(self) -> Iterator[Request]:
        """Requests of the next tasks, which are gone from the server then."""
        for data in self.fetch_data(self.redis_key, self.redis_batch_size) or ():
            try:
                made = self.make_request_from_data(data)
                requests = list(made) if isinstance(made, Iterable) else [made] if made else []
            except Exception:
                self.logger.exception("No requests can be made of a task, it is lost: %r", data)
                continue
            if not requests:
                self.logger.debug("Request not made from data: %r", data)
            yield from requests

    def schedule_next_requests(self) -> None:
        """Crawl the next ones; used where the scheduler is not the fleet's, or a project has its own way."""
        engine = self.crawler.engine
        assert engine is not None
        for request in self.next_requests():
            engine.crawl(request)

    # Tasks

    def make_requests(self, task: Task) -> Any:
        """What the fleet asks to be made of a task."""
        decoded = self.crawler.settings.getbool("REDIS_DECODE_RESPONSES")
        return self.make_request_from_data(task.data.decode(self.redis_encoding) if decoded else task.data)

    def make_request_from_data(self, data: Any) -> Any:
        """A request, several, or None, from what a producer pushed; whatever it raises makes the task *dead*.

        As it is here: a URL; or a JSON object with ``url``, maybe ``method`` and ``meta``, whose other fields
        are form data; or ``{"request": {...}}`` with the fields of a whole request, as in ``FleetSpider``.
        """
        text = bytes_to_str(data, self.redis_encoding)
        try:
            fields = json.loads(text)
        except ValueError:
            return FormRequest(text.strip(), dont_filter=True)
        if not isinstance(fields, dict):
            raise Unreadable("the task is JSON, but no object with a url")
        if fields.keys() == {"request"} and isinstance(fields["request"], dict):
            return request_of(Task(json.dumps(fields["request"]).encode()), self)
        if not fields.get("url"):
            raise Unreadable("the task has no url")
        url, meta = fields.pop("url"), fields.pop("meta", None) or {}
        method = str(fields.pop("method", "GET")).upper()
        form = {name: _form_value(value) for name, value in fields.items()}
        return FormRequest(url, dont_filter=True, method=method, formdata=form, meta=meta)

    def spider_idle(self) -> None:
        """There is nothing to do: stay, or end after ``max_idle_time``."""
        if is_tool():
            return
        if scheduler_of(self.crawler) is None:
            if self.count_size(self.redis_key) > 0:
                self._idle.restart()
            self.schedule_next_requests()
        if not self.max_idle_time or self._idle.seconds() < self.max_idle_time:
            raise DontCloseSpider
        if self.server is not None and self.count_size(self.redis_key) > 0:
            self._idle.restart()
            raise DontCloseSpider


class RedisSpider(RedisMixin, Spider):
    """A spider that is fed from Redis; see :class:`RedisMixin`."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.setup_redis(crawler)
        return spider


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """A spider with rules that is fed from Redis; see :class:`RedisMixin`."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.setup_redis(crawler)
        return spider


def _whole(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an integer") from None


def _form_value(value: Any) -> Any:
    """Numbers, as they are written in a form."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
