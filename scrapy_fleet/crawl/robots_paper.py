"""A site's robots.txt as the workers of a crawl share it: what is in the paper, and whose task it is.

Papers come from the store and are not trusted: what cannot be read is fetched again.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec
from msgspec import Struct

from scrapy_fleet.store.base import Store

LARGEST = 512 * 1024
"""Bytes of a robots.txt that are heeded; RFC 9309 asks for at least 500 KiB."""
_HEADER = 4096
_ANY_AGE = 1e9
_TOO_OLD = -1.0


class Fetched(Struct, frozen=True, array_like=True):
    """What asking a site for its robots.txt brought."""

    body: bytes | None = b""
    """The rules; none if everything is allowed. None: they are not known, nothing is allowed."""
    failed: str = ""
    """Why the site could not be asked. The rules are then those it had before, if they are known."""
    retry_after: float = 0.0
    """For how many seconds it then wants to be left alone."""


def cut(body: bytes) -> bytes:
    """As much of a robots.txt as is heeded. Half a line may say the opposite of a whole one."""
    return body if len(body) <= LARGEST else body[: body.rfind(b"\n", 0, LARGEST) + 1]


def pack(fetched: Fetched) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(fetched))


def unpack(data: bytes) -> Fetched | None:
    """What a paper says; None if it is garbage, or larger than any of ours."""
    unzip = zlib.decompressobj()
    try:
        text = unzip.decompress(data, LARGEST + _HEADER)
        if not unzip.eof or unzip.unused_data:
            return None
        return msgspec.msgpack.decode(text, type=Fetched)
    except (zlib.error, msgspec.DecodeError):
        return None


class Ages(NamedTuple):
    """For how many seconds a paper is good."""

    fetched: float
    failed: float

    def of(self, fetched: Fetched | None) -> float:
        if fetched is None:
            return _TOO_OLD
        if not fetched.failed:
            return self.fetched
        # It is asked again when it may be, and not later.
        return min(self.fetched, max(self.failed, 0.9 * fetched.retry_after))


class Look(NamedTuple):
    """What a worker finds when it looks for a site's paper."""

    fetched: Fetched | None = None
    good_for: float = 0.0
    """Seconds."""
    mine: bool = False
    """There is none that is good, and it is this worker's task to fetch it."""
    old: Fetched | None = None
    """The one that is no longer good."""


def look(store: Store, name: str, worker: str, ages: Ages, patience: float) -> Look:
    """Look for a paper; if somebody else is about to fetch it, the answer is empty."""
    paper = store.paper(name, worker, _ANY_AGE, patience)
    if paper.data is None:
        return Look(mine=paper.mine)
    old = unpack(paper.data)
    if old is not None and paper.age <= ages.of(old):
        return Look(old, ages.of(old) - paper.age)
    paper = store.paper(name, worker, ages.of(old), patience)
    if paper.data is None:
        return Look(mine=paper.mine, old=old)
    new = unpack(paper.data)  # it came at this moment
    return Look(new, ages.of(new) - paper.age if new is not None else 0.0)
