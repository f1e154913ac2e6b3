"""Duplicate filters for Scrapy's own scheduler, without the add-on.

``DUPEFILTER_CLASS = "scrapy_fleet.dupefilters.BloomDupeFilter"``

They are the filters of ``FLEET_SEEN``, with its other settings: in memory, or with ``JOBDIR`` in the file
``seen.db`` there, which a killed process leaves whole. (With the add-on, set ``FLEET_SEEN`` instead.)
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.job import job_dir

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.errors import SeenDiffers, StoreAway
from scrapy_fleet.keys import key_of
from scrapy_fleet.model import SeenKind, SeenPlan
from scrapy_fleet.seen import describe

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

CRAWL = "seen"
"""The name under which a file's keys are kept; ``scrapy fleet seen --url FILE`` needs none."""
KEEP_EVERY = 1.0
"""Seconds until new keys are in the file. A crash before forgets them: such pages may be fetched again."""
KEEP_AT = 5000
"""How many of them there are at most, as long as the file can be written."""
RECENT = 50_000
"""How many keys, at least, are not looked up in the file if they were met lately and are never forgotten."""


class _StoreDupeFilter(RFPDupeFilter):
    """Scrapy's own filter, words and stats included, over a store's instead of its set of fingerprints."""

    fleet_seen: ClassVar[SeenKind]

    def __init__(
        self,
        path: str | None = None,
        debug: bool = False,
        *,
        fingerprinter: Any = None,
        plan: SeenPlan | None = None,
    ) -> None:
        super().__init__(None, debug, fingerprinter=fingerprinter)
        self._folder = path
        self._plan = plan or SeenPlan(kind=self.fleet_seen)
        self._store: Store | None = None
        self._fresh: set[int] = set()
        self._recent: set[int] = set()
        self._older: set[int] = set()
        self._keep_at = 0.0
        self._trouble_told = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> _StoreDupeFilter:
        return cls(
            job_dir(crawler.settings),
            crawler.settings.getbool("DUPEFILTER_DEBUG"),
            fingerprinter=crawler.request_fingerprinter,
            plan=fleet_settings.seen_plan(crawler.settings, cls.fleet_seen),
        )

    def open(self) -> None:
        if self._folder is None:
            self._store = fleet_settings.open_store("memory:", CRAWL)
            self._store.use_seen(self._plan)
        else:
            self._store = self._file(Path(self._folder, "seen.db"))

    def _file(self, path: Path) -> Store:
        from scrapy_fleet.store.sqlite import SqliteStore

        # Without a flush to the disk for every second of the crawl: a power cut costs a few pages twice.
        store = SqliteStore(path, CRAWL, durability="normal")
        try:
            store.use_seen(self._plan)
        except SeenDiffers:
            there = store.seen_info().plan or SeenPlan()
            store.close()
            sizes = f" --capacity {self._plan.capacity} --error {self._plan.error:g}"
            raise SeenDiffers(
                f"{path} knows what was met by {describe(there)}, but {describe(self._plan)} is asked for. "
                f"Either go back to that, or convert it: scrapy fleet seen convert {self.fleet_seen}"
                f"{sizes if self.fleet_seen == 'bloom' else ''} --url {path}, or begin anew: delete the file."
            ) from None
        return store

    def request_seen(self, request: Request) -> bool:
        # Through the method that older filters override.
        key = key_of(bytes.fromhex(self.request_fingerprint(request)))
        due = time.monotonic() >= self._keep_at or (len(self._fresh) >= KEEP_AT and not self._trouble_told)
        if due and (known := self._keep(key)) is not None:
            return known
        known = key in self._fresh or self._is_kept(key)
        if not known or self.fleet_seen == "rolling":  # which is to know when it was met last
            self._fresh.add(key)
        return known

    def _keep(self, *keys: int) -> bool | None:
        """Write down what is new, and these keys too: whether all of them were known; None if it cannot."""
        assert self._store is not None
        if self._folder is not None:
            self._keep_at = time.monotonic() + KEEP_EVERY
        try:
            if self._fresh:
                self._store.mark(tuple(self._fresh))
                self._remember(*self._fresh)
                self._fresh.clear()
            # This also ends the time of what is to be forgotten.
            known = self._store.mark(keys) == 0
        except StoreAway as error:
            self._tell(error)
            return None
        self._trouble_told = False
        return known

    def _is_kept(self, key: int) -> bool:
        assert self._store is not None
        if key in self._recent or key in self._older:
            return True
        try:
            known = self._store.seen((key,))[0]
        except StoreAway as error:
            self._tell(error)
            return False  # rather fetched twice than never
        if known:
            self._remember(key)
        return known

    def _remember(self, *keys: int) -> None:
        if self.fleet_seen != "rolling":
            self._recent.update(keys)
            if len(self._recent) >= RECENT:
                self._recent, self._older = set(), self._recent

    def _tell(self, error: StoreAway) -> None:
        if not self._trouble_told:
            self._trouble_told = True
            logger.error("%s Until it can be written, what is new is only kept in memory.", error)

    def clear(self) -> None:
        """Forget everything."""
        assert self._store is not None
        for keys in (self._fresh, self._recent, self._older):
            keys.clear()
        self._store.clear()
        self._store.use_seen(self._plan)

    def close(self, reason: str) -> None:
        if self._store is not None:
            self._keep()
            self._store.close()
            self._store = None


class ExactDupeFilter(_StoreDupeFilter):
    """Forgets nothing, and never errs: 64 bits of every fingerprint."""

    fleet_seen = "exact"


class BloomDupeFilter(_StoreDupeFilter):
    """Takes two bytes a URL. A few pages, ``FLEET_SEEN_ERROR`` of all at most, are never fetched."""

    fleet_seen = "bloom"


class RollingDupeFilter(_StoreDupeFilter):
    """Forgets what has not been met for ``FLEET_SEEN_WINDOW``."""

    fleet_seen = "rolling"
