"""``requests.seen``: fingerprints of requests, as lines of hexadecimal digits or, from Scrapy 2.19 on, as
bytes behind their length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from scrapy_fleet.ops.jobdir.queue_files import Data

_LOOKED_AT = 4096
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF\r\n")
_LENGTH = 2
LONGEST = 512


class SeenCounts(Struct):
    read: int = 0
    unreadable: int = 0
    """Lines, or pieces, that are no fingerprints."""


def fingerprints(data: Data, counts: SeenCounts) -> Iterator[bytes]:
    """What was seen, and how much of it can be read. A line that was half written is passed over."""
    head = bytes(data[:_LOOKED_AT])
    if not head:
        return
    in_digits = sum(byte in _HEXADECIMAL for byte in head) > 0.8 * len(head)
    for found in _from_lines(data, counts) if in_digits else _from_bytes(data, counts):
        counts.read += 1
        yield found


# Lines of digits


def _from_lines(data: Data, counts: SeenCounts) -> Iterator[bytes]:
    usual = _usual_length(data)
    # Those that scrapy-fleet writes are shorter than Scrapy's own, and stand among them.
    lengths = {usual, 16, 40} if usual in (16, 40) else {usual}
    for line, whole in _lines(data):
        if whole and len(line) not in lengths and len(line) > usual:
            # A crawl that went on after a crash wrote behind half a line.
            counts.unreadable += 1
            line = line[-usual:]
        if len(line) not in (lengths if whole else {usual}):
            counts.unreadable += bool(line)
            continue
        try:
            yield bytes.fromhex(line.decode("ascii"))
        except ValueError:
            counts.unreadable += 1


def _usual_length(data: Data) -> int:
    lengths = Counter(len(line) for line, whole in _lines(data, most=1000) if line)
    usual, _ = lengths.most_common(1)[0] if lengths else (40, 0)
    # A single line may be half a line.
    return usual if usual in (16, 40) or lengths[usual] > 1 or usual < 16 else 40


def _lines(data: Data, most: int | None = None) -> Iterator[tuple[bytes, bool]]:
    """Lines without their ends, and whether they have one."""
    for number, found in enumerate(re.finditer(rb"([^\n]*)(\n|\Z)", data)):
        if number == most or (not found[1] and not found[2]):
            return
        yield found[1].strip(), bool(found[2])


# Bytes behind their length


def _from_bytes(data: Data, counts: SeenCounts) -> Iterator[bytes]:
    at, prefix = 0, bytes(data[:_LENGTH])
    while at + _LENGTH <= len(data):
        size = int.from_bytes(data[at : at + _LENGTH], "big")
        end = at + _LENGTH + size
        following = bytes(data[end : end + _LENGTH])
        if 0 < size <= LONGEST and end <= len(data) and (len(following) < _LENGTH or following == prefix):
            yield bytes(data[at + _LENGTH : end])
            at = end
            continue
        counts.unreadable += 1
        at = _next_whole(data, at + 1, prefix)
    counts.unreadable += at < len(data)


def _next_whole(data: Data, at: int, prefix: bytes) -> int:
    """The next place where one of the usual length is followed by another, or by the end."""
    step = _LENGTH + int.from_bytes(prefix, "big")
    while (at := data.find(prefix, at)) >= 0:
        following = at + step
        if following == len(data) or data[following : following + _LENGTH] == prefix:
            return at
        at += 1
    return len(data)
