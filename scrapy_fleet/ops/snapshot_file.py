"""A crawl in a file: pieces, what was seen, and at the end a checksum of all of it.

The file is a line that says what it is, then frames: a length in four bytes and as many bytes of msgpack. The
first frame is the head; a length of 0 says that the checksum follows, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from scrapy_fleet.cargo import Piece
from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Counts, SeenPlan

MAGIC = b"scrapy-fleet snapshot 1\n"
PIECES_AT_ONCE = 200
LONGEST = 1 << 30
_length = struct.Struct(">L")


class Filter(Struct, frozen=True, tag="filter"):
    """How keys are known. It comes before all else."""

    plan: SeenPlan
    count: int


class Keys(Struct, frozen=True, tag="keys"):
    """Keys that were seen. They come before all pieces."""

    keys: list[int]


class Blocks(Struct, frozen=True, tag="blocks"):
    """What a Bloom filter has instead: its blocks, by their numbers."""

    blocks: list[tuple[int, bytes]]


Seen = Filter | Keys | Blocks


class Head(Struct, frozen=True):
    """What the file is about."""

    crawl: str
    run: int
    counts: Counts
    seen: int
    items: int


Frame = list[Piece | Seen]
_encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(list[Piece | Seen]).decode
_decode_head = msgspec.msgpack.Decoder(Head).decode


class Damaged(FleetError):
    """It is not whole, and nothing of it is used."""


def write(path: Path, head: Head, pieces: Iterable[Piece | Seen]) -> int:
    """Write the file, which is there only when it is whole; how many bytes it has."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            digest = hashlib.blake2b(MAGIC, digest_size=32)
            file.write(MAGIC)
            _put(file, digest, _encode(head))
            things = iter(pieces)
            while frame := list(islice(things, PIECES_AT_ONCE)):
                _put(file, digest, _encode(frame))
            file.write(_length.pack(0) + digest.digest())
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        part.replace(path)
    except OSError as error:
        raise FleetError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)
    return size


def _put(file: BinaryIO, digest: hashlib.blake2b, data: bytes) -> None:
    framed = _length.pack(len(data)) + data
    digest.update(framed)
    file.write(framed)


def check(path: Path) -> Head:
    """Read all of it, and see that it is whole."""
    head: Head | None = None
    try:
        for frame in _frames(path):
            if head is None:
                head = _decode_head(frame)
            else:
                _decode_frame(frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(
            f"{path} is damaged, or of a newer scrapy-fleet: {error}. Nothing was restored."
        ) from None
    if head is None:
        raise Damaged(f"{path} is damaged: it has no head. Nothing was restored.")
    return head


def read(path: Path) -> Iterator[Piece | Seen]:
    """What is in it, behind its head."""
    for frame in islice(_frames(path), 1, None):
        yield from _decode_frame(frame)


def _frames(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from _checked(path, file)
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror or error}.") from error


def _checked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise Damaged(
            f"{path} is no snapshot of scrapy-fleet, or one of another version. Nothing was restored."
        )
    digest = hashlib.blake2b(MAGIC, digest_size=32)
    while True:
        head = file.read(_length.size)
        size = _length.unpack(head)[0] if len(head) == _length.size else None
        if size == 0:
            break
        data = b"" if size is None or size > LONGEST else file.read(size)
        if size is None or len(data) < size:
            raise Damaged(f"{path} was cut off, or is damaged: its end is missing. Nothing was restored.")
        digest.update(head + data)
        yield data
    if file.read(digest.digest_size) != digest.digest() or file.read(1):
        raise Damaged(f"{path} is damaged: its checksum is another. Nothing was restored.")
