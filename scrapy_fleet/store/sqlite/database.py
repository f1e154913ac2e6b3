"""The SQLite file: opening it, its clock, its transactions, and its errors in our words.

WAL mode: a killed process loses nothing that was committed; with ``durability="full"`` a power
cut neither. The tables are described in ``schema.sql``, the statements are in ``statements.sql``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from scrapy_fleet.errors import GivenUp, StoreAway, StoreError
from scrapy_fleet.model import Counts, Plan

APPLICATION_ID = 0x53464C54
VERSION = 4
OLDEST_SQLITE = (3, 33, 0)
TIMEOUT = 5.0
"""For how many seconds to wait for others that write."""
CHECKED_SIZE = 1 << 26
"""Files up to this size are checked for damage when they are opened."""


def _load(name: str) -> str:
    return files("scrapy_fleet.store.sqlite").joinpath(name).read_text(encoding="utf-8")


def _statements() -> dict[str, str]:
    blocks = _load("statements.sql").split("-- name: ")[1:]
    return {name.strip(): sql.strip() for name, sql in (block.split("\n", 1) for block in blocks)}


SQL = _statements()


class Database:
    """One connection to a crawl's file."""

    def __init__(
        self,
        path: Path,
        crawl: str,
        clock: Callable[[], float],
        durability: Literal["full", "normal"] = "full",
        *,
        create: bool = True,
    ) -> None:
        self.path = path
        self._clock = clock
        self.wall = time.time if clock is time.monotonic else clock
        """What keys age by: days may pass in which the machine is off."""
        self._offset = 0.0
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(
                f"Python was built with SQLite {sqlite3.sqlite_version}; "
                f"{'.'.join(map(str, OLDEST_SQLITE))} or newer is needed. Use a newer Python."
            )
        if create:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"The folder {path.parent} cannot be made: {error.strerror}. "
                    "Name a folder you can write to in FLEET_URL or JOBDIR."
                ) from error
        elif not path.exists():
            raise StoreError(f"There is no crawl at {path}. Check the name, or FLEET_URL and JOBDIR.")
        with self.errors():
            self.connection = sqlite3.connect(
                path, timeout=TIMEOUT, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        try:
            with self.errors():
                self._prepare(crawl, durability, create=create)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, crawl: str, durability: str, *, create: bool) -> None:
        execute = self.connection.execute
        self.connection.row_factory = sqlite3.Row
        tables = self.value("SELECT count(*) FROM sqlite_master")
        if not (tables or create):
            raise StoreError(f"{self.path} is empty: there is no crawl in it.")
        if tables and self.value("PRAGMA application_id") != APPLICATION_ID:
            raise StoreError(f"{self.path} is a database of another program. Name another file in FLEET_URL.")
        # A damaged file should be told before a crawl, as long as that does not take long.
        if self.path.stat().st_size < CHECKED_SIZE and self.value("PRAGMA quick_check(1)") != "ok":
            raise sqlite3.DatabaseError("malformed")
        self._use_wal()
        execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        execute("PRAGMA cache_size = -32768")
        execute("PRAGMA temp_store = MEMORY")
        execute("PRAGMA wal_autocheckpoint = 16000")
        with self.write():
            version = self.value("PRAGMA user_version")
            if version == 0:
                self._create(crawl)
            elif version < VERSION:
                raise StoreError(
                    f"{self.path} was written by an older scrapy-fleet (format {version}, this one knows "
                    f"{VERSION}). Use the version that began the crawl, or name another file in FLEET_URL."
                )
            elif version > VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer scrapy-fleet (format {version}, this one knows "
                    f"{VERSION}). Upgrade scrapy-fleet, or name another file in FLEET_URL."
                )
            name = self.value("SELECT name FROM crawl")
            if name != crawl:
                raise StoreError(
                    f"{self.path} holds the crawl {name!r}, not {crawl!r}. One file holds one crawl: "
                    "name a folder in FLEET_URL, or set FLEET_CRAWL."
                )
        self.run("incoming")

    def _use_wal(self) -> None:
        """SQLite does not wait its turn here: two workers that make the file together must try again."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # whatever it says besides
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _create(self, crawl: str) -> None:
        for statement in _load("schema.sql").split(";\n"):
            if statement.strip():
                self.connection.execute(statement)
        self.connection.execute(
            "INSERT INTO crawl (one, name, plan, clock) VALUES (1, ?, ?, ?)",
            (crawl, msgspec.json.encode(Plan()).decode(), self._clock()),
        )
        self.connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self.connection.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        self.connection.close()

    # Transactions and statements

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        with self._transaction("BEGIN IMMEDIATE", "COMMIT"):
            yield

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        with self._transaction("BEGIN", "ROLLBACK"):
            yield

    @contextlib.contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[None]:
        with self.errors():
            self.connection.execute(begin)
            try:
                yield
                self.connection.execute(end)
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def run(self, name: str, **values: object) -> sqlite3.Cursor:
        """Run a statement of ``statements.sql``."""
        return self.connection.execute(SQL[name], values)

    def value(self, name: str, **values: object) -> Any:
        """The one value that a statement, by name or as SQL, gives."""
        return self.connection.execute(SQL.get(name, name), values).fetchone()[0]

    # The crawl and its workers

    def crawl(self) -> sqlite3.Row:
        row: sqlite3.Row = self.connection.execute(
            "SELECT *, (SELECT count(*) FROM producer) AS feeding FROM crawl"
        ).fetchone()
        self._offset = row["offset"]
        return row

    def worker(self, worker: str) -> sqlite3.Row:
        found = self.connection.execute("SELECT * FROM worker WHERE id = ?", (worker,)).fetchone()
        if found is None:
            raise GivenUp(f"{worker} was silent for too long and was given up.")
        row: sqlite3.Row = found
        return row

    def now(self, crawl: sqlite3.Row) -> float:
        """The crawl's time: the machine's monotonic clock, carried over reboots.

        All processes of the machine share it, and nobody can set it back.
        """
        now = self._clock() + self._offset
        if now < crawl["clock"] - 5:  # the machine was started anew: go on from where we were
            self._offset = crawl["clock"] - self._clock()
            self.connection.execute("UPDATE crawl SET offset = ?", (self._offset,))
            now = crawl["clock"]
        return now

    def glance(self, crawl: sqlite3.Row) -> float:
        """The crawl's time, for observers, who write nothing."""
        return float(max(self._clock() + self._offset, crawl["clock"]))

    # Errors

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours: what passes is StoreAway, what does not is StoreError."""
        try:
            yield
        except sqlite3.Error as error:
            raise ours(error, self.path) from error


def ours(error: sqlite3.Error, path: Path) -> StoreAway | StoreError:
    """What passes by itself is StoreAway, what does not is StoreError."""
    code = getattr(error, "sqlite_errorname", None) or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreAway(f"{path} is locked by another process ({error}).")
    if code.startswith("SQLITE_FULL"):
        return StoreAway(f"The disk of {path} is full. Free some space.")
    if code.startswith("SQLITE_IOERR"):
        return StoreAway(f"{path} cannot be read or written: {error} ({code}).")
    if code.startswith("SQLITE_NOTADB"):
        return StoreError(f"{path} is not a database. Name another file in FLEET_URL.")
    if code.startswith("SQLITE_CORRUPT") or "malformed" in str(error):
        return StoreError(
            f"{path} is damaged. Keep a copy, then save what can be read: "
            f"sqlite3 {path} .recover | sqlite3 new.db"
        )
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError(
            f"{path} cannot be opened for writing: {error}. Check the rights of the file and "
            "its folder, or name another place in FLEET_URL or JOBDIR."
        )
    return StoreError(f"{path}: {error} ({code}).")


def counts_of(crawl: sqlite3.Row) -> Counts:
    return Counts(*(crawl[name] for name in ("accepted", "waiting", "leased", "done", "dead", "feeding")))


def crawl_name(path: Path) -> str:
    """Which crawl a file holds."""
    if not path.exists():
        raise StoreError(f"There is no crawl at {path}. Check the name, or FLEET_URL and JOBDIR.")
    try:
        with contextlib.closing(
            sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)
        ) as connection:
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise StoreError(f"{path} is not a crawl of scrapy-fleet.")
            return str(connection.execute("SELECT name FROM crawl").fetchone()[0])
    except sqlite3.Error as error:
        raise ours(error, path) from error


@lru_cache(maxsize=8)
def decode_plan(plan: str) -> Plan:
    """From column ``crawl.plan``. It is the same at every commit."""
    return msgspec.json.decode(plan, type=Plan)
