"""A job directory: which queues are in it, of which priority, and how it was left.

Priorities and slots come from the names of the files, so it does not matter whether ``active.json`` was
written. Nothing here writes.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from scrapy_fleet.errors import FleetError
from scrapy_fleet.ops.jobdir import queue_files, seen_file
from scrapy_fleet.ops.jobdir.queue_files import Kind, Parts
from scrapy_fleet.ops.jobdir.unpickling import unpickle

_PRIORITY = re.compile(r"(-?\d{1,30})(s?)")
_CHUNK = re.compile(r"q(\d{5,12})")

Order = Literal["lifo", "fifo"]


class Record(Struct):
    """A request as it lies in a queue."""

    position: int
    data: bytes


class Found(Struct):
    """What a queue has turned out to be."""

    records: int = 0
    lost: int = 0
    """Bytes that belong to no record."""
    repeats: bool = False
    """What was taken out of it before the crash cannot be told from what was not."""
    crashed: str = ""
    """Why it is known that it was not closed."""
    problem: str = ""
    """Why nothing more could be read."""


class Queue(Struct):
    """One queue: the requests of one slot with one priority."""

    path: Path
    name: str
    """Where it is in the job directory."""
    kind: Kind
    priority: int
    seeds: bool
    order: Order

    def records(self, found: Found, *, newest_first: bool = False) -> Iterator[Record]:
        """Its requests, as they came; what there is to say of it is written down in ``found``."""
        read = {"lifo": self._lifo, "fifo": self._fifo, "sqlite": self._sqlite}[self.kind]
        try:
            for record in read(found, newest_first):
                found.records += 1
                yield record
        except (OSError, ValueError, sqlite3.Error) as error:
            found.problem = f"{type(error).__name__}: {error}"

    def _lifo(self, found: Found, newest_first: bool) -> Iterator[Record]:
        with queue_files.contents(self.path) as data:
            parts = queue_files.lifo_parts(data)
            found.lost += parts.lost
            if parts.lost or parts.told != len(parts.starts):
                found.crashed = "it was not closed"
            for number in _numbers(parts, newest_first):
                yield Record(number, _cut(data, parts, number))

    def _fifo(self, found: Found, newest_first: bool) -> Iterator[Record]:
        info = queue_files.read_info(self.path / "info.json")
        if info is None:
            found.crashed, found.repeats = "info.json is missing or damaged", True
        records = 0
        chunks = _chunks(self.path)
        for chunk, path in reversed(chunks) if newest_first else chunks:
            if info is not None and chunk < info.tail[0]:
                continue
            offset = info.tail[2] if info is not None and chunk == info.tail[0] else 0
            with queue_files.contents(path) as data:
                parts = queue_files.fifo_parts(data, min(offset, len(data)))
                found.lost += parts.lost
                records += len(parts.starts)
                for number in _numbers(parts, newest_first):
                    # By where they lie in the file, however many were taken out before.
                    yield Record(chunk << 40 | parts.starts[number], _cut(data, parts, number))
        if info is not None and (records != info.size or found.lost):
            found.crashed, found.repeats = "it was used after info.json was written", True

    def _sqlite(self, found: Found, newest_first: bool) -> Iterator[Record]:
        order = "DESC" if newest_first else "ASC"
        with queue_files.sqlite_queue(self.path) as connection:
            connection.text_factory = bytes
            for id, item in connection.execute(f"SELECT id, item FROM queue ORDER BY id {order}"):
                if isinstance(id, int) and isinstance(item, bytes):
                    yield Record(id, item)
                else:
                    found.lost += 1


def _numbers(parts: Parts, newest_first: bool) -> Iterable[int]:
    numbers = range(len(parts.starts))
    return reversed(numbers) if newest_first else numbers


def _cut(data: queue_files.Data, parts: Parts, number: int) -> bytes:
    start = parts.starts[number]
    return bytes(data[start : start + parts.sizes[number]])


def _chunks(folder: Path) -> list[tuple[int, Path]]:
    found = [(_CHUNK.fullmatch(path.name), path) for path in _inside(folder)]
    return sorted((int(match[1]), path) for match, path in found if match and path.is_file())


def _inside(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise FleetError(f"{folder} cannot be read: {error.strerror or error}.") from error


class Job:
    """A job directory."""

    def __init__(self, path: Path, sqlite_order: Order = "lifo") -> None:
        self.path = path
        if not path.is_dir():
            raise FleetError(f"There is no folder {path}. Name a job directory, as JOBDIR did.")
        self._sqlite_order = sqlite_order
        self.strange: list[str] = []
        """Files that are no queues."""
        self.queues = list(self._find_queues(path / "requests.queue"))
        self.seen_path = path / "requests.seen"
        self.state_path = path / "spider.state"
        there = (self.seen_path.is_file(), self.state_path.is_file(), (path / "requests.queue").is_dir())
        if not any(there):
            raise FleetError(f"{path} is no job directory: it has neither requests.queue nor requests.seen.")

    def _find_queues(self, folder: Path) -> Iterator[Queue]:
        for path in _inside(folder):
            if path.name == "active.json":
                continue
            if _PRIORITY.fullmatch(path.name):
                yield from self._queue(path)
            elif path.is_dir():
                for inner in _inside(path):
                    yield from self._queue(inner)
            else:
                self.strange.append(self._name(path))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _queue(self, path: Path) -> Iterator[Queue]:
        named = _PRIORITY.fullmatch(path.name)
        kind = _kind(path) if named else None
        if named is None or kind is None:
            if not path.name.endswith(("-journal", "-wal", "-shm")):
                self.strange.append(self._name(path))
            return
        order: Order = self._sqlite_order if kind == "sqlite" else kind
        seeds = bool(named[2])
        # Start requests have a queue of their own, which is FIFO as a rule.
        if seeds and kind == "sqlite":
            order = "fifo"
        yield Queue(path, self._name(path), kind, -int(named[1]), seeds, order)

    def why_crashed(self) -> str:
        """Why it is known that Scrapy did not end in order; empty if nothing speaks for it.

        What the queues themselves tell comes on top of it: see ``Found.crashed``.
        """
        active = self.path / "requests.queue" / "active.json"
        if not active.is_file():
            return "active.json is missing"
        told = queue_files.read_json(active)
        if not isinstance(told, dict | list):
            return "active.json is damaged"
        lists = told.values() if isinstance(told, dict) else [told]
        names = [str(number) for each in lists if isinstance(each, list) for number in each]
        there = [queue.path.name.removesuffix("s") for queue in self.queues]
        return "" if {*names} == {*there} else "active.json does not name the queues that are there"

    def fingerprints(self, counts: seen_file.SeenCounts) -> Iterator[bytes]:
        if not self.seen_path.is_file():
            return
        try:
            with queue_files.contents(self.seen_path) as data:
                yield from seen_file.fingerprints(data, counts)
        except OSError as error:
            raise FleetError(f"{self.seen_path} cannot be read: {error.strerror or error}.") from error

    def state(self) -> dict[object, object]:
        """``spider.state``; raises Unreadable if it is damaged or not plain."""
        if not self.state_path.is_file():
            return {}
        state = unpickle(self.state_path.read_bytes())
        return state if isinstance(state, dict) else {}


def _kind(path: Path) -> Kind | None:
    try:
        if path.is_dir():
            return "fifo"
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(len(queue_files.SQLITE_MAGIC))
    except OSError:
        return "lifo"  # why it cannot be read is told where its records are
    return "sqlite" if head == queue_files.SQLITE_MAGIC else "lifo"
