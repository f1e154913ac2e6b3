"""What can go wrong, and what to do about it.

Every error a user may meet is a :class:`FleetError`; its text says what happened, where, why,
and the remedy. Errors that pass by themselves are :class:`StoreAway`: the frontier waits and tries again.
"""

from __future__ import annotations


class FleetError(Exception):
    """Something scrapy-fleet cannot go on with. The message says what to do."""


class SettingError(FleetError):
    """A setting is misspelt, or has a value that makes no sense."""


class IncompatibleScrapy(FleetError):
    """This Scrapy differs inside from those scrapy-fleet knows; upgrade scrapy-fleet or pin Scrapy."""


class StoreError(FleetError):
    """The store cannot be used as it is: not a database, damaged, or not ours."""


class CrawlInUse(StoreError):
    """The crawl cannot be cleared while workers are in it. Stop them first: scrapy fleet stop <crawl>."""


class SeenDiffers(StoreError):
    """The crawl knows what it has met in another way than FLEET_SEEN asks for."""


class NoKeys(StoreError):
    """A Bloom filter keeps no keys: they can neither be listed nor forgotten nor go to another filter.

    What can be done is to begin anew: scrapy fleet clear <crawl>, or FLEET_SEEN = "off".
    """


class StoreAway(FleetError):
    """The store does not answer, is locked or full; nothing is lost, and it is tried again."""


class StoreEmptied(FleetError):
    """The store has lost this crawl: its server was restarted without its data, or emptied (FLUSHALL).

    Gone are the requests that waited, what was seen, and items, counters and state kept there; what this
    worker holds is not. To prevent it, let the server write to disk (``appendonly yes``), do not let
    it evict keys (``maxmemory-policy noeviction``), and give the crawl a database that nobody flushes.
    """


class StoreRolledBack(StoreEmptied):
    """The store has lost the newest part of this crawl: commits that it had answered are not there.

    Its server was restarted from an older copy of its data, or a replica that lagged took its place.
    What this worker did since then is done again, and what it found is found again. To prevent the
    first, let the server write to disk (``appendonly yes``). The second can only be made rarer: with
    ``min-replicas-to-write 1`` a master whose replica is away accepts nothing.
    """


class GivenUp(FleetError):
    """This worker was silent for longer than FLEET_WORKER_TIMEOUT; what it held was passed on.

    Nothing is lost: it joins again and goes on. If it happens often, raise FLEET_WORKER_TIMEOUT.
    """


class TransientError(FleetError, ValueError):
    """A queue cannot take a request just now, but will again; until then this one waits in memory.

    A ValueError, since that is what Scrapy's own scheduler takes as a sign to do so.
    """


class SerializationError(FleetError, ValueError):
    """A queue can never take this request, because it cannot be written down; it waits in memory."""


class Unstorable(SerializationError):
    """A request holds something that cannot be written down; it runs from this worker's memory."""


class Unreadable(FleetError, ValueError):
    """A stored request cannot be turned back into one; it is kept as dead, with the reason."""
