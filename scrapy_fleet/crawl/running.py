"""The requests in Scrapy's hands: which lease each belongs to, and when that may be settled."""

from __future__ import annotations

import heapq
import time
from collections import Counter

from scrapy import Request

from scrapy_fleet.model import Beside, Outcome


class Running:
    """From when a request is handed out until Scrapy has let go of it.

    Kept by request object, never in ``meta``: a redirect copies ``meta``. Requests that cannot be
    stored run from here, and pin the lease they come from: should this worker die, that one runs
    again and brings them again, so it is not settled before they are done.
    """

    def __init__(self) -> None:
        self._leased: dict[Request, tuple[int, float]] = {}
        self._unsent: set[Request] = set()
        self._returning: dict[Request, tuple[Request, int]] = {}
        self._items: dict[int, list[bytes | Beside]] = {}
        self._local: dict[Request, tuple[int | None, float]] = {}
        self._queue: list[tuple[int, int, Request, int | None]] = []
        self._queued = 0
        self._pins: Counter[int] = Counter()
        self._pinned: set[int] = set()

    def start(self, request: Request, token: int) -> None:
        self._leased[request] = (token, time.monotonic())
        self._unsent.add(request)

    def own(self, request: Request) -> int | None:
        """The request's own lease."""
        found = self._leased.get(request)
        return found[0] if found is not None else None

    def send(self, request: Request) -> int | None:
        """The own lease of a request that is about to be downloaded; None if it has been downloaded before:
        a callback may download its response's request again."""
        if request not in self._unsent:
            return None
        self._unsent.discard(request)
        return self._leased[request][0]

    def give_back(self, request: Request, stand_in: Request) -> None:
        """A leased request is to go back unsent; it runs until its stand-in has come to the scheduler."""
        self._returning[stand_in] = request, self._leased[request][0]

    def take_back(self, stand_in: Request) -> int | None:
        """The lease of the request that this one stands for, which does not run any more; None if it stands
        for none."""
        if not self._returning or (found := self._returning.pop(stand_in, None)) is None:
            return None
        request, token = found
        if request in self._leased:
            self.forget(request)
        return token

    def token(self, request: Request | None) -> int | None:
        """The lease that brings this request, or what comes of it, again should this worker die."""
        if request is None:
            return None
        found = self._leased.get(request) or self._local.get(request)
        return found[0] if found is not None else None

    def add_item(self, token: int, item: bytes | Beside) -> None:
        self._items.setdefault(token, []).append(item)

    # Requests that cannot be stored

    @property
    def has_local(self) -> bool:
        return bool(self._queue or self._local)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def has_orphans(self) -> bool:
        """Whether there are some that no lease would bring again."""
        pins = [pin for _, _, _, pin in self._queue] + [pin for pin, _ in self._local.values()]
        return None in pins

    def keep(self, request: Request, pin: int | None) -> None:
        if pin is not None:
            self._pins[pin] += 1
        self._queued += 1
        heapq.heappush(self._queue, (-request.priority, -self._queued, request, pin))

    def next_local(self) -> Request | None:
        if not self._queue:
            return None
        _, _, request, pin = heapq.heappop(self._queue)
        self._local[request] = (pin, time.monotonic())
        return request

    # Ending

    def all(self) -> list[Request]:
        return [*self._leased, *self._local]

    def finished(self, active: set[Request]) -> list[Outcome]:
        """What may be settled, now that Scrapy has only ``active`` in hand."""
        ended = set()
        for request in [r for r in self._leased if r not in active]:
            self._unsent.discard(request)
            ended.add(self._leased.pop(request)[0])
        for request in [r for r in self._local if r not in active]:
            pin, _ = self._local.pop(request)
            if pin is not None:
                self._pins[pin] -= 1
        self._pinned |= ended
        return self._free()

    def end(self, request: Request) -> list[Outcome]:
        """One that has a lease, but that Scrapy was never given, has ended."""
        self._unsent.discard(request)
        self._pinned.add(self._leased.pop(request)[0])
        return self._free()

    def _free(self) -> list[Outcome]:
        """What has ended, and nothing that cannot be stored is left of."""
        pins = self._pins
        free = [token for token in self._pinned if not pins.get(token)] if pins else list(self._pinned)
        self._pinned.difference_update(free)
        for token in free if pins else ():
            del pins[token]
        return [self._outcome(token) for token in free]

    def _outcome(self, token: int) -> Outcome:
        found = self._items.pop(token, None)
        if found is None:
            return Outcome(token)
        items = tuple(item for item in found if not isinstance(item, Beside))
        return Outcome(token, items=items, beside=tuple(item for item in found if isinstance(item, Beside)))

    def older_than(self, seconds: float) -> list[tuple[Request, int | None]]:
        """Those that have run for longer; with the lease of those that have one of their own."""
        began = time.monotonic() - seconds
        old: list[tuple[Request, int | None]] = []
        old += [(request, token) for request, (token, at) in self._leased.items() if at < began]
        old += [(request, None) for request, (_, at) in self._local.items() if at < began]
        return old

    def forget(self, request: Request) -> None:
        """A leased request that is given up."""
        self._unsent.discard(request)
        token, _ = self._leased.pop(request)
        self._items.pop(token, None)
