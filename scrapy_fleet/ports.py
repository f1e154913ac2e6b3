"""What the frontier and its link need of others: an event loop, an owner, its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Batch, Beat, Entry, Joined, Lease, Plan, Receipt


class Loop(Protocol):
    """What is needed of an event loop."""

    def post(self, call: Callable[[], None]) -> None:
        """Have it called on the loop's thread; may be used from any thread."""

    def later(self, delay: float, call: Callable[[], None]) -> None:
        """Have it called after ``delay`` seconds; only from the loop's thread."""


class Reports(Protocol):
    """Where the answers go, on the loop's thread."""

    def joined(self, joined: Joined) -> None: ...
    def committed(self, batches: list[Batch], receipts: list[Receipt], span: tuple[float, float]) -> None:
        """All went well; when the last batch was sent, and answered (``time.monotonic``)."""

    def beaten(self, beat: Beat) -> None: ...
    def given_up(self, batches: list[Batch]) -> None: ...
    def emptied(self, batches: list[Batch], error: FleetError) -> None: ...
    def unsent(self, batches: list[Batch]) -> None:
        """They came when a beat had just brought one of these two pieces of news."""

    def failed(self, error: FleetError) -> None: ...


class Listener(Protocol):
    """What the frontier tells its owner, always on the loop's thread."""

    def gather(self) -> None:
        """A commit is about to be made: settle what is finished, keep what has changed."""

    def ready(self) -> None:
        """Something changed: there may be requests to run, or nothing more to come."""

    def added(self, accepted: int, known: list[Entry]) -> None:
        """So many entries were accepted, these had been seen before."""

    def given_up(self) -> None:
        """The store does not know this worker any more. It may have come back with an older copy of
        the crawl, in which what was queued is missing."""

    def emptied(self, held: list[Lease]) -> list[Entry]:
        """The store has lost the crawl, and with it all that was queued. What these leases were made of."""

    def failed(self, error: FleetError) -> None:
        """The store cannot be used any more."""


class Limits(Protocol):
    """The settings that a frontier heeds."""

    @property
    def capacity(self) -> int: ...
    @property
    def lookahead(self) -> int: ...
    @property
    def commit_interval(self) -> float: ...
    @property
    def commit_size(self) -> int: ...
    @property
    def worker_timeout(self) -> float: ...
    @property
    def plan(self) -> Plan: ...
