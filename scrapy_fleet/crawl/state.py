"""``spider.state``: kept with every commit, key by key."""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Spider

from scrapy_fleet.crawl.plain import pack, unpack
from scrapy_fleet.errors import Unreadable, Unstorable

logger = logging.getLogger(__name__)


class SpiderState:
    """Loads ``spider.state`` and tells what has changed in it since it was last asked."""

    def __init__(self, spider: Spider) -> None:
        self._spider: Any = spider
        self._stored: dict[str, bytes] = {}
        self._refused: set[Any] = set()

    def load(self, stored: dict[str, bytes]) -> None:
        state: dict[str, object] = {}
        for name, value in stored.items():
            try:
                state[name] = unpack(value)
            except Unreadable as error:
                logger.error("spider.state[%r] cannot be read and is left out: %s", name, error)
        self._spider.state = state
        self._stored = {name: value for name, value in stored.items() if name in state}

    def changed(self) -> dict[str, bytes | None]:
        state = getattr(self._spider, "state", None)
        if not isinstance(state, dict) or not (state or self._stored):
            return {}
        changes: dict[str, bytes | None] = {name: None for name in self._stored if name not in state}
        for name, value in state.items():
            try:
                if not isinstance(name, str):
                    raise Unstorable(f"state has the key {name!r}; only texts can be keys")
                packed = pack(value, f"state[{name!r}]")
            except Unstorable as error:
                if name not in self._refused:
                    self._refused.add(name)
                    logger.error("spider.state cannot be saved whole: %s", error)
                continue
            if self._stored.get(name) != packed:
                changes[name] = packed
        for name, packed_value in changes.items():
            if packed_value is None:
                del self._stored[name]
            else:
                self._stored[name] = packed_value
        return changes
