"""A queue of bytes in an SQLite file of its own, for schedulers that keep a queue per host and priority."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

from scrapy_fleet.errors import StoreAway, StoreError
from scrapy_fleet.store.sqlite.database import ours

APPLICATION_ID = 0x53464C51
PATIENCE = 1.0
"""Seconds that a call waits for a file that is locked: Scrapy's loop stands still meanwhile."""

T = TypeVar("T")


class SqliteQueue:
    """The oldest first (``fifo``) or the newest. What is away for a while raises StoreAway, but never in
    ``len``: that answers what it knew last, and at least 1 when it cannot know.

    What was popped is deleted with the next call, so that a killed process gets it again: it may not have
    come so far as to take note of it. The file belongs to one process: it stays locked while it is open, and
    is removed when it is closed empty.
    """

    def __init__(
        self,
        path: Path,
        *,
        fifo: bool,
        durability: Literal["full", "normal"] = "full",
        patience: float = PATIENCE,
    ) -> None:
        self.path = path
        end = "ASC" if fifo else "DESC"
        self._next = f"SELECT id, data FROM item WHERE id IS NOT ? ORDER BY id {end} LIMIT 1"
        self._popped: int | None = None
        self._size = 0
        self._is_sure = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The folder {path.parent} cannot be made: {error.strerror}. Name another in JOBDIR."
            ) from error
        with self._errors():
            self._connection = sqlite3.connect(path, timeout=patience, isolation_level=None)
        try:
            with self._errors():
                self._prepare(durability)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, durability: str) -> None:
        execute = self._connection.execute
        # With it, the log needs no shared memory: one open file less, of which there are many queues.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        has_tables = execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if has_tables and execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is not a queue of scrapy-fleet but of another program, perhaps Scrapy itself. "
                "Finish that crawl with the queues that began it, or name another JOBDIR."
            )
        execute("PRAGMA journal_mode = WAL")
        execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        execute(f"PRAGMA application_id = {APPLICATION_ID}")
        execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._count()

    def push(self, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"only bytes can be pushed, not {type(data).__name__}")
        with self._errors():
            self._connection.execute("INSERT INTO item (data) VALUES (?)", (data,))
            self._size += 1

    def pop(self) -> bytes | None:
        return self.take(bytes)

    def take(self, read: Callable[[bytes], T]) -> T | None:
        """Remove the next item, if ``read`` can make something of it; what that raises leaves it in place."""
        self._delete_popped()
        if (row := self._look()) is None:
            return None
        value = read(row[1])
        self._popped = row[0]
        self._size -= 1
        return value

    def peek(self) -> bytes | None:
        row = self._look()
        return None if row is None else bytes(row[1])

    def _look(self) -> tuple[int, bytes] | None:
        with self._errors():
            row: tuple[int, bytes] | None = self._connection.execute(self._next, (self._popped,)).fetchone()
            return row

    def _delete_popped(self) -> None:
        if self._popped is not None:
            with self._errors():
                self._connection.execute("DELETE FROM item WHERE id = ?", (self._popped,))
                self._popped = None

    def clear(self) -> None:
        with self._errors():
            self._connection.execute("DELETE FROM item")
            self._size, self._popped = 0, None

    def close(self) -> None:
        with suppress(StoreAway, StoreError):
            self._delete_popped()
        is_empty = len(self) == 0 and self._popped is None
        self._connection.close()
        if is_empty:
            self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        if not self._is_sure:
            try:
                with self._errors():
                    self._count()
            except (StoreAway, StoreError):
                return max(1, self._size)
        return self._size

    def _count(self) -> None:
        count = "SELECT count(*) FROM item WHERE id IS NOT ?"
        self._size = self._connection.execute(count, (self._popped,)).fetchone()[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        self._is_sure = False
        try:
            yield
        except sqlite3.Error as error:
            raise ours(error, self.path) from error
        self._is_sure = True
