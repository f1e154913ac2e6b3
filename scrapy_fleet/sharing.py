"""Values that travel, of what is shared beside requests: documents, items, and what others read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Paper(Struct, frozen=True):
    """A document that workers share: its data, or whose task it is to make it."""

    data: bytes | None = None
    age: float = 0.0
    mine: bool = False


class ItemGroup(Struct, frozen=True):
    """Processors that share the work on the items of a crawl."""

    name: str
    left: int
    """Items that none of them has been given yet."""
    taken: int
    """Items that one of them has, and has not acknowledged."""


class Beside(Struct, frozen=True, gc=False):
    """Something to write beside the crawl, on the server where it is, for other programs to read."""

    key: str
    value: bytes
    do: Literal["push", "add", "put", "most", "least"] = "push"
    """``push``: to the end of a list. The others are about a field of a hash: add a number to it, put a
    value, or put a number if it is greater, or less, than what is there."""
    field: str = ""
