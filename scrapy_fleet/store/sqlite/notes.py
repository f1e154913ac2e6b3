"""A few requests, noted in an SQLite file until they are done: what a killed process had in hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scrapy_fleet.store.sqlite.database import ours


class Notes:
    """Survives a killed process; a power cut may undo the last moments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors():
            self._connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
            execute = self._connection.execute
            execute("PRAGMA locking_mode = EXCLUSIVE")
            execute("PRAGMA journal_mode = WAL")
            execute("PRAGMA synchronous = NORMAL")
            execute(
                "CREATE TABLE IF NOT EXISTS note"
                " (id INTEGER PRIMARY KEY, payload BLOB NOT NULL, starts INTEGER NOT NULL)"
            )

    def all(self) -> list[tuple[int, bytes, int]]:
        """Number, payload, and how often it was started."""
        with self._errors():
            return self._connection.execute("SELECT id, payload, starts FROM note ORDER BY id").fetchall()

    def add(self, payload: bytes, *, starts: int) -> int:
        with self._errors():
            made = self._connection.execute(
                "INSERT INTO note (payload, starts) VALUES (?, ?)", (payload, starts)
            )
        assert made.lastrowid is not None
        return made.lastrowid

    def start(self, id: int) -> None:
        with self._errors():
            self._connection.execute("UPDATE note SET starts = starts + 1 WHERE id = ?", (id,))

    def remove(self, ids: Iterable[int]) -> None:
        with self._errors():
            self._connection.execute("BEGIN")
            self._connection.executemany("DELETE FROM note WHERE id = ?", [(id,) for id in ids])
            self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(self, "_connection", None) is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise ours(error, self.path) from error
