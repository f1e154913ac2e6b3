"""Requests as the dicts that ``Request.to_dict`` makes, and back, without trusting what is read."""

from __future__ import annotations

from typing import Any

from scrapy import Request, Spider

from scrapy_fleet.crawl.callbacks import stored_callback
from scrapy_fleet.crawl.codec import find_class
from scrapy_fleet.errors import Unreadable


def request_of(data: Any, spider: Spider) -> Request:
    """The request that a dict describes. Its class must be loaded already, and its callbacks be the spider's:
    nothing is imported, and no other method can be named."""
    if not isinstance(data, dict) or not isinstance(data.get("url"), str):
        raise Unreadable("the stored request is no dict with a url")
    fields = dict(data)
    name = fields.pop("_class", None)
    cls: type[Request] = Request
    if name is not None:
        if not isinstance(name, str):
            raise Unreadable("the class of the stored request is no name")
        module, _, own = name.rpartition(".")
        cls = find_class(f"{module}:{own}")
    for kind in ("callback", "errback"):
        if fields.get(kind) is not None:
            fields[kind] = stored_callback(spider, fields[kind], kind)
    known = {key: value for key, value in fields.items() if key in cls.attributes}
    try:
        return cls(**known)
    except Exception as error:
        raise Unreadable(f"the stored request is damaged: {error}") from error
