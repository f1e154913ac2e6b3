"""The arguments of ``import scrapy-redis``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

HELP = "the queue, the duplicate set and the start URLs of scrapy-redis"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spider", required=True, metavar="NAME", help="the spider whose crawl it is")
    parser.add_argument("--url", metavar="URL", help="the server of scrapy-redis (as REDIS_URL, ... say)")
    parser.add_argument("--to", metavar="URL", help="where the crawl is to be (as FLEET_URL says)")
    parser.add_argument("--crawl", metavar="NAME", help="how it is called (as FLEET_CRAWL says)")
    parser.add_argument("--queue", metavar="KEY", help="the key of the queue (<spider>:requests)")
    parser.add_argument("--dupefilter", metavar="KEY", help="the key of the set (<spider>:dupefilter)")
    parser.add_argument("--start", metavar="KEY", help="the key of the start URLs (<spider>:start_urls)")
    parser.add_argument(
        "--trust-pickle", action="store_true", help="read requests that are pickles of plain data"
    )
    parser.add_argument("--yes", action="store_true", dest="sure", help="do it")
    parser.add_argument(
        "-s", metavar="NAME=VALUE", action="append", default=[], dest="own", help="set a setting"
    )


def run(opts: argparse.Namespace, settings: BaseSettings | None) -> int:
    from scrapy_fleet.ops.import_redis import import_redis

    return import_redis(opts, settings)
