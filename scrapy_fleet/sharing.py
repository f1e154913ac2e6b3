"""Values that travel, of what is shared beside requests: documents and items."""

from __future__ import annotations

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
