"""The files of queuelib's queues, read record by record, however they were left.

A record is read where the sizes around it agree; what does not fit is skipped and counted, in bytes. Nothing
is ever written.
"""

from __future__ import annotations

import json
import mmap
import re
import shutil
import sqlite3
import struct
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

Data = bytes | mmap.mmap
Kind = Literal["lifo", "fifo", "sqlite"]

_size = struct.Struct(">L")
_HEADER = 4
# How a pickle (protocol 2 to 5) or a marshalled request begins, whose first field is its URL.
_BEGINS = re.compile(rb"\x80[\x02-\x05]|[\x7b\xfb](?=.{1,5}url)", re.DOTALL)
TAIL = 1 << 20
"""How far back the end of a torn LIFO file is looked for before all of it is read from its beginning."""
MOST_ENDS = 100
"""How many places in it that look like an end are followed back to the beginning."""
MOST_TRIES = 2_000_000
"""How many places of a damaged file are looked at to find where the next record begins or ends."""


class Parts(Struct):
    """Where the records of a file are, oldest first, and what it says of itself."""

    starts: array[int]
    sizes: array[int]
    lost: int = 0
    """Bytes that belong to no record."""
    told: int | None = None
    """How many records it says it has: written when it is closed."""


def _parts() -> Parts:
    return Parts(array("Q"), array("Q"))


def _number(data: Data, at: int) -> int:
    return int(_size.unpack_from(data, at)[0])


def _begins(data: Data, at: int) -> bool:
    return _BEGINS.match(data, at) is not None


def _is_record(data: Data, start: int, end: int) -> bool:
    """Whether it looks like one: pickles end with a dot, marshalled dicts with a zero."""
    return end > start and _begins(data, start) and data[end - 1 : end] in (b".", b"0")


# LIFO: the number of records, then each record with its size behind it


def lifo_parts(data: Data) -> Parts:
    end = len(data)
    if end <= _HEADER:
        return Parts(array("Q"), array("Q"), lost=0 if end in (0, _HEADER) else end, told=0)
    told = _number(data, 0)
    parts = _chain(data, end)
    if parts is None:
        ends = (torn for torn in range(end - 1, max(_HEADER, end - TAIL), -1) if _may_end(data, torn))
        for torn in islice(ends, MOST_ENDS):
            if (parts := _chain(data, torn)) is not None:
                # There may be whole ones behind it, if it is not torn, but damaged.
                rest = _forward(data, torn, _lifo_record)
                parts = Parts(parts.starts + rest.starts, parts.sizes + rest.sizes, rest.lost)
                break
    if parts is None:
        parts = _forward(data, _HEADER, _lifo_record)
    parts.told = told
    return parts


def _may_end(data: Data, end: int) -> bool:
    if end < 2 * _HEADER:
        return False
    size = _number(data, end - _HEADER)
    start = end - _HEADER - size
    return start >= _HEADER and _is_record(data, start, end - _HEADER)


def _chain(data: Data, end: int) -> Parts | None:
    """The records back from this end, if they reach the beginning exactly."""
    parts = _parts()
    while end > _HEADER:
        size = _number(data, end - _HEADER) if end >= 2 * _HEADER else 0
        start = end - _HEADER - size
        if size == 0 or start < _HEADER:
            return None
        parts.starts.append(start)
        parts.sizes.append(size)
        end = start
    parts.starts.reverse()
    parts.sizes.reverse()
    return parts


class _Tries:
    """Counts how often something was tried, so that it comes to an end."""

    def __init__(self) -> None:
        self.left = MOST_TRIES

    def one_more(self) -> bool:
        self.left -= 1
        return self.left > 0


def _lifo_record(data: Data, start: int, tries: _Tries) -> tuple[int, int, int] | None:
    """A record from here on: where it starts, its size, and where the next begins."""
    if not _begins(data, start):
        return None
    # The first byte of a size is zero, since no record takes 16 MB.
    at = start
    while (at := data.find(b"\0", at + 1, start + (1 << 24))) >= 0 and tries.one_more():
        if at + _HEADER > len(data) or _number(data, at) != at - start:
            continue
        if _is_record(data, start, at):
            following = at + _HEADER
            if following == len(data) or _begins(data, following):
                return start, at - start, following
    return None


def _forward(data: Data, at: int, record: Any) -> Parts:
    """Records from the beginning on; where none fits, the next place that looks like one is tried."""
    parts, tries = _parts(), _Tries()
    while at < len(data):
        found = record(data, at, tries)
        if found is not None:
            start, size, at = found
            parts.starts.append(start)
            parts.sizes.append(size)
            tries = _Tries()
            continue
        skipped = at
        while (at := _next_beginning(data, at + 1, record)) < len(data) and tries.one_more():
            if record(data, at, tries) is not None:
                break
        else:
            at = len(data)
        parts.lost += at - skipped
    return parts


def _next_beginning(data: Data, at: int, record: Any) -> int:
    before = _HEADER if record is _fifo_record else 0
    found = _BEGINS.search(data, at + before)
    return found.start() - before if found else len(data)


# FIFO: each record behind its size, in chunks


def fifo_parts(data: Data, at: int = 0) -> Parts:
    """The records of a chunk, from an offset on."""
    return _forward(data, at, _fifo_record)


def _fifo_record(data: Data, at: int, tries: _Tries) -> tuple[int, int, int] | None:
    start = at + _HEADER
    if start > len(data):
        return None
    size = _number(data, at)
    end = start + size
    if end > len(data) or not _is_record(data, start, end):
        return None
    # What follows must look like a record as well, or be the torn last one.
    follows = end + _HEADER >= len(data) or _begins(data, end + _HEADER)
    return (start, size, end) if follows else None


class Info(Struct):
    """``info.json``: where a FIFO queue was left when it was closed."""

    size: int
    tail: tuple[int, int, int]
    head: tuple[int, int]
    chunksize: int = 0


def read_info(path: Path) -> Info | None:
    try:
        info = msgspec.json.decode(path.read_bytes(), type=Info)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    sound = info.size >= 0 and min(*info.tail, *info.head) >= 0
    return info if sound else None


# Reading files


@contextmanager
def contents(path: Path) -> Iterator[Data]:
    """The bytes of a file, which need not fit into memory."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
        else:
            with closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
                yield data


SQLITE_MAGIC = b"SQLite format 3\0"


@contextmanager
def sqlite_queue(path: Path) -> Iterator[sqlite3.Connection]:
    """A queue of queuelib in SQLite. One that was not closed is put right in a copy."""
    beside = [path.with_name(path.name + end) for end in ("-journal", "-wal")]
    left = [each for each in beside if each.exists() and each.stat().st_size]
    if not left:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="fleet-jobdir-") as folder:
        copy = Path(folder, path.name)
        for each in (path, *left):
            shutil.copyfile(each, copy.with_name(each.name))
        with closing(sqlite3.connect(copy)) as connection:
            yield connection


def read_json(path: Path) -> object:
    """None if it is not there, or damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
