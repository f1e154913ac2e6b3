"""The example project of scrapy-redis, with nothing but the name changed, run as people run it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from scrapy_fleet.ops.site import Shape, running
from tests.commands import FLEET, environment
from tests.crash.servers import durable, needed_binary
from tests.servers import RedisServer

pytestmark = pytest.mark.slow

FILES = {
    "scrapy.cfg": "[settings]\ndefault = example.settings\n",
    "example/__init__.py": "",
    "example/settings.py": """
import os

SPIDER_MODULES = ["example.spiders"]
NEWSPIDER_MODULE = "example.spiders"

DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"
SCHEDULER = "scrapy_redis.scheduler.Scheduler"
SCHEDULER_PERSIST = True
STATS_CLASS = "scrapy_redis.stats.RedisStatsCollector"

ITEM_PIPELINES = {
    "example.pipelines.ExamplePipeline": 300,
    "scrapy_redis.pipelines.RedisPipeline": 400,
}
REDIS_PORT = os.environ["EXAMPLE_PORT"]
""",
    "example/pipelines.py": """
class ExamplePipeline:
    def process_item(self, item, spider=None):
        item["crawled"] = True
        return item
""",
    "example/spiders/__init__.py": "",
    "example/spiders/mycrawler_redis.py": """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule

from scrapy_redis.spiders import RedisCrawlSpider


class MyCrawler(RedisCrawlSpider):
    name = "mycrawler_redis"
    redis_key = "mycrawler:start_urls"
    max_idle_time = 1
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    def __init__(self, *args, **kwargs):
        domain = kwargs.pop("domain", "")
        self.allowed_domains = filter(None, domain.split(","))
        super().__init__(*args, **kwargs)

    def parse_page(self, response):
        return {"name": response.css("title::text").extract_first(), "url": response.url}
""",
}
SHAPE = Shape("tree", pages=30)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with durable(needed_binary()) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"\bscrapy_redis\b", "scrapy_fleet.scrapy_redis", text))
    return tmp_path


def run(project: Path, server: RedisServer, command: list[str], *words: str) -> str:
    port = server.url.rpartition(":")[2].partition("/")[0]
    done = subprocess.run(
        [*command, *words],
        cwd=project,
        env={**environment(), "EXAMPLE_PORT": port, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_it_runs(project: Path, server: RedisServer) -> None:
    scrapy = [sys.executable, "-m", "scrapy"]
    with running(SHAPE) as site, redis.Redis.from_url(server.url) as client:
        anything: Any = client
        anything.lpush("mycrawler:start_urls", site.start_url)
        said = run(project, server, scrapy, "crawl", "mycrawler_redis", "-a", "domain=127.0.0.1")
        assert "(finished)" in said
        assert not site.lost()
        items = [json.loads(item) for item in anything.lrange("mycrawler_redis:items", 0, -1)]
        assert {item["url"] for item in items} == {site.url(f"/p/{number}") for number in range(1, 30)}
        assert all(item["crawled"] and item["name"] for item in items)
        assert int(anything.hget("mycrawler_redis:stats", "response_received_count")) == 30
        assert run(project, server, FLEET, "status", "--json").count("finished") == 1
        assert "Page 3" in run(
            project, server, scrapy, "fetch", "--nolog", site.url("/p/3"), "--spider", "mycrawler_redis"
        )
