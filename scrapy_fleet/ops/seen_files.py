"""Files of what has been seen: URLs, or fingerprints as Scrapy and ``seen export`` write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Literal

from scrapy_fleet.errors import FleetError
from scrapy_fleet.keys import key_of

HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
SHORTEST = 8
"""Hex digits of a line that is taken for a fingerprint."""
SIZE = 2

What = Literal["URLs", "fingerprints"]


class SeenFile:
    """The keys in a file. What it holds is known when the first of them has been read."""

    def __init__(self, stream: BufferedReader, name: str, key_of_url: Callable[[str], int]) -> None:
        self.what: What | None = None
        self._stream = stream
        self._name = name
        self._key_of_url = key_of_url

    def __iter__(self) -> Iterator[int]:
        if self._stream.peek(1)[:1] == b"\0":  # the length of a fingerprint, in two bytes
            self.what = "fingerprints"
            yield from self._binary()
        else:
            yield from self._lines()

    def _binary(self) -> Iterator[int]:
        """``requests.seen`` as newer Scrapys write it; older ones write lines of hex digits."""
        at = 0
        while len(head := self._stream.read(SIZE)) == SIZE:
            size = int.from_bytes(head, "big")
            if not size:
                raise FleetError(f"{self._name} is damaged: a fingerprint of no length at byte {at:,}.")
            fingerprint = self._stream.read(size)
            if len(fingerprint) < size:
                return  # a killed crawl did not come to write all of it
            at += SIZE + size
            yield key_of(fingerprint)

    def _lines(self) -> Iterator[int]:
        width = 0
        for number, raw in enumerate(self._stream, 1):
            try:
                text = raw.decode("utf-8-sig").strip()
            except UnicodeDecodeError:
                raise self._wrong(number, "it is not text in UTF-8") from None
            if not text or text.startswith("#"):
                continue
            is_hex = HEX.fullmatch(text) is not None and len(text) >= SHORTEST
            if self.what is None:
                self.what = "fingerprints" if is_hex else "URLs"
                width = len(text)
            if self.what == "URLs":
                try:
                    yield self._key_of_url(text)
                except ValueError as error:
                    what = f"{text[:100]!r} is neither a URL nor a fingerprint in hex digits"
                    raise self._wrong(number, f"{what} ({error})") from None
            elif not raw.endswith(b"\n") and len(text) < width:
                return  # a killed crawl did not come to write all of it
            elif not is_hex:
                raise self._wrong(number, f"{text[:100]!r} is no fingerprint in hex digits, as those before")
            else:
                yield key_of(bytes.fromhex(text))

    def _wrong(self, number: int, why: str) -> FleetError:
        return FleetError(
            f"{self._name}, line {number:,}: {why}. What comes before it is imported: mend the line, "
            "and import the file again; what is known already does no harm."
        )


def as_line(key: int) -> str:
    """The first 64 bits of a fingerprint."""
    return key.to_bytes(8, "big", signed=True).hex()
