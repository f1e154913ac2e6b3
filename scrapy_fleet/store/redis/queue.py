"""A queue of bytes on a Redis server, for schedulers that keep a queue per host and priority.

An answer that gets lost neither loses nor repeats an item: what was popped stays in the queue's hand until
the next call says that it has arrived, and what was pushed without an answer is taken out again, since
whoever pushed it has been told that it is not there.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakValueDictionary

from scrapy_fleet.errors import StoreAway, StoreError
from scrapy_fleet.store.redis.server import Server

logger = logging.getLogger(__name__)

PREFIX = "fleet:queue:"
MARK = 8
PAUSE = 0.5
"""Seconds for which a server that did not answer is not asked again: each try may hold Scrapy's loop up."""

T = TypeVar("T")


class Line:
    """The connection to a server, which all queues of a process share."""

    def __init__(self, url: str, shown: str) -> None:
        self._server = Server(url, shown, "")
        self._shown = shown
        self._away: StoreAway | None = None
        self._asked = 0.0

    def run(self, key: str, verb: str, *args: bytes | str) -> list[Any]:
        if self._away is not None and time.monotonic() < self._asked + PAUSE:
            raise Unasked(str(self._away))
        try:
            answer = self._server.run_on(key, verb, *args)
        except StoreAway as error:
            if self._away is None:
                logger.warning("%s Requests wait in memory until it is back.", error)
            self._away, self._asked = error, time.monotonic()
            raise
        if self._away is not None:
            self._away = None
            logger.info("%s is back.", self._shown)
        return answer


class Unasked(StoreAway):
    """The server did not answer a moment ago, so it was not asked."""


_lines: WeakValueDictionary[str, Line] = WeakValueDictionary()


def line_to(url: str, shown: str) -> Line:
    line = _lines.get(url)
    if line is None:
        line = _lines[url] = Line(url, shown)
    return line


class RedisQueue:
    """The oldest first (``fifo``) or the newest. What is away for a while raises StoreAway, but never in
    ``len``: that answers what it knew last, and at least 1 when it cannot know.

    The queue belongs to one process at a time. When it is empty, nothing is left of it on the server.
    """

    def __init__(self, line: Line, name: str, *, fifo: bool) -> None:
        self.key = f"{PREFIX}{{{quote(name, safe='/:')}}}"
        self._line = line
        self._order = "fifo" if fifo else "lifo"
        self._arrived = b""
        self._doubtful: list[bytes] = []
        self._marks = secrets.randbits(64)
        self._size = 0
        self._is_sure = False
        self._run("queue_open")

    def push(self, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"only bytes can be pushed, not {type(data).__name__}")
        self._marks = (self._marks + 1) % (1 << 64)
        item = self._marks.to_bytes(MARK, "big") + data
        try:
            self._run("queue_push", item)
        except Unasked:
            raise
        except StoreAway:
            self._doubtful.append(item)
            raise

    def pop(self) -> bytes | None:
        return self.take(bytes)

    def take(self, read: Callable[[bytes], T]) -> T | None:
        """Remove the next item, if ``read`` can make something of it; what that raises leaves it in place."""
        known = self._size if self._is_sure else 0
        items = self._run("queue_pop")
        if not items:
            if known:
                logger.error(
                    "%s is empty, though it had %d requests: the server has lost them. It was restarted "
                    "without its data, or emptied; let it write to disk (appendonly yes).",
                    *(self.key, known),
                )
            return None
        item: bytes = items[0]
        try:
            value = read(item[MARK:])
        except BaseException:
            self._run("queue_open")
            raise
        self._arrived = item[:MARK]
        return value

    def peek(self) -> bytes | None:
        items = self._run("queue_peek")
        return bytes(items[0][MARK:]) if items else None

    def clear(self) -> None:
        self._run("queue_clear")

    def close(self) -> None:
        self._run("queue_open")

    def __len__(self) -> int:
        if not self._is_sure:
            try:
                self._run("queue_drop")
            except (StoreAway, StoreError):
                return max(1, self._size)
        return self._size

    def _run(self, verb: str, *args: bytes) -> list[Any]:
        self._is_sure = False
        if self._doubtful:
            self._line.run(self.key, "queue_drop", self._order, self._arrived, *self._doubtful)
            self._doubtful.clear()
        size, *items = self._line.run(self.key, verb, self._order, self._arrived, *args)
        self._size, self._is_sure = size, True
        return items
