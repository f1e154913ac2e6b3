"""Requests that a queue has given away: written down until Scrapy has let go of them.

What is popped from a queue is gone from it. Without this, a killed process would take along all that it was
fetching, and all that waited in its memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scrapy import Request, Spider

from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.errors import FleetError, SerializationError, Unreadable
from scrapy_fleet.store.sqlite.notes import Notes

logger = logging.getLogger(__name__)


class InHand:
    """Requests that cannot be written down are left out: should the process die, they are lost."""

    def __init__(self, path: Path, spider: Spider) -> None:
        self._codec = Codec(spider)
        self.path = path
        self._notes = Notes(path)
        self._numbers: dict[Request, int] = {}
        self._started: set[Request] = set()
        self._told = False

    def left_over(self, max_starts: int) -> list[Request]:
        """What an earlier process had in hand when it died, but for requests that many died of."""
        found = []
        for number, payload, starts in self._notes.all():
            try:
                request = self._codec.decode(payload)
            except Unreadable as error:
                logger.error("A request that was in hand is left in %s: %s", self.path, error)
                continue
            if starts >= max_starts:
                logger.error("%s is given up: the process died %d times while it ran.", request, starts)
                self._notes.remove([number])
                continue
            self._numbers[request] = number
            found.append(request)
        return found

    def keep(self, request: Request) -> None:
        """It waits in memory."""
        self._note(request, starts=0)

    def start(self, request: Request) -> None:
        """It is handed to Scrapy."""
        if request not in self._numbers:
            self._note(request, starts=1)
        else:
            self._safely(lambda: self._notes.start(self._numbers[request]))
        self._started.add(request)

    def settle(self, active: set[Request]) -> None:
        """Only ``active`` are still in Scrapy's hands."""
        ended = [request for request in self._started if request not in active]
        self.drop(*ended)
        self._started.difference_update(ended)

    def drop(self, *requests: Request) -> None:
        """They are done, or back in the queue."""
        numbers = [self._numbers.pop(request) for request in requests if request in self._numbers]
        if numbers:
            self._safely(lambda: self._notes.remove(numbers))

    def has(self, request: Request) -> bool:
        return request in self._numbers

    def close(self) -> None:
        is_empty = False
        with suppress(FleetError):
            is_empty = not self._notes.all()
        self._notes.close()
        if is_empty:
            self.path.unlink(missing_ok=True)

    def _note(self, request: Request, starts: int) -> None:
        try:
            payload = self._codec.encode(request)
        except SerializationError:
            return
        except Exception:
            logger.debug("%s cannot be written down.", request, exc_info=True)
            return

        def add() -> None:
            self._numbers[request] = self._notes.add(payload, starts=starts)

        self._safely(add)

    def _safely(self, write: Callable[[], None]) -> None:
        """The crawl goes on without notes, if the disk is full, say; but it is told."""
        try:
            write()
        except FleetError as error:
            if not self._told:
                self._told = True
                logger.error("A crash may now lose or repeat requests in hand: %s", error)
