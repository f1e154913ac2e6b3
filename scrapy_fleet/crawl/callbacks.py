"""Which methods of a spider may be named in what is stored: names only choose among what is there anyway."""

from __future__ import annotations

import reprlib
from types import FunctionType, MethodType
from typing import Any

from scrapy import Spider

from scrapy_fleet.crawl.plain import a_kind
from scrapy_fleet.errors import Unreadable

# Callbacks that Scrapy's own spiders put into their requests, or mean for users to put there.
_SCRAPY_CALLBACKS = {"parse", "_parse", "parse_start_url", "_callback", "_errback", "_parse_sitemap"}
# Methods by which Scrapy runs a spider, also where the user has overridden them.
_NEVER_CALLBACKS = {*dir(Spider), "closed", "start_requests"} - _SCRAPY_CALLBACKS
# ... and those by which scrapy-fleet does.
_NEVER_CALLBACKS |= {"count_size", "fetch_data", "make_request_from_data", "make_requests", "next_requests"}
_NEVER_CALLBACKS |= {
    "pop_list_queue",
    "pop_priority_queue",
    "schedule_next_requests",
    "setup_redis",
    "spider_idle",
}
_NO_USERS_SPIDERS = ("scrapy.", "scrapy_fleet.crawl.", "scrapy_fleet.scrapy_redis.")


def callbacks(spider: Spider) -> dict[str, FunctionType]:
    """The methods that a stored request of this spider may name."""
    found: dict[str, FunctionType] = {}
    for cls in reversed(type(spider).__mro__):
        scrapys = cls in Spider.__mro__ or f"{cls.__module__}.".startswith(_NO_USERS_SPIDERS)
        for name, member in vars(cls).items():
            found.pop(name, None)
            dunder = name.startswith("__") and name.endswith("__")
            allowed = name in _SCRAPY_CALLBACKS if scrapys else name not in _NEVER_CALLBACKS
            if type(member) is FunctionType and allowed and not dunder:
                found[name] = member
    return found


def callback_of(spider: Spider, name: object) -> MethodType:
    """The method that a task may name as its callback: a public one that the spider defines."""
    methods = callbacks(spider)
    if type(name) is not str or name.startswith("_") or name not in methods:
        raise Unreadable(f"{reprlib.repr(name)} is not a callback of {type(spider).__name__}")
    return MethodType(methods[name], spider)


def stored_callback(spider: Spider, name: object, where: str) -> MethodType:
    """The method that a stored request may name."""
    methods = callbacks(spider)
    if type(name) is not str or name not in methods:
        raise no_callback(spider, name, where)
    return MethodType(methods[name], spider)


def no_callback(spider: Spider, name: object, where: str) -> Unreadable:
    return Unreadable(
        f"{where} {reprlib.repr(name)} is not a callback of {type(spider).__name__}; "
        "if the method was renamed, keep one with the old name"
    )


def describe_callable(value: Any, spider: Spider) -> str:
    if isinstance(value, MethodType):
        other = "" if value.__self__ is spider else f" of another object, {a_kind(type(value.__self__))}"
        return f"is the method {getattr(value, '__qualname__', value.__func__)}{other}"
    if isinstance(value, FunctionType):
        return "is a lambda" if value.__name__ == "<lambda>" else f"is the function {value.__qualname__}"
    return f"is {a_kind(type(value))}"
