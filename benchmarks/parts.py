"""The parts of the benchmark, by name: each is a module of its own, and can be run alone.

A part has the sizes ``QUICK`` (only sees that it works), ``SHORT`` (``make bench``) and ``FULL``
(``make bench-full``), which are arguments of its ``measure``; and ``tables``, ``goals``, ``noise`` and
``plots``, which take what ``measure`` found.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

from benchmarks.measure import Goal

NAMES = (
    "crawl",
    "profile",
    "queue",
    "scheduler",
    "curves",
    "shapes",
    "fleet",
    "loss",
    "manners",
    "pace",
    "seen",
    "feeding",
    "jobdir",
    "dupefilters",
)
"""In the order in which they are measured and shown. A part is added here, with a section on the page."""


class Part(Protocol):
    QUICK: dict[str, Any]
    SHORT: dict[str, Any]
    FULL: dict[str, Any]

    def measure(self, **options: Any) -> dict[str, Any]: ...
    def tables(self, results: dict[str, Any]) -> str: ...
    def goals(self, results: dict[str, Any]) -> list[Goal]: ...
    def noise(self, results: dict[str, Any]) -> list[str]: ...
    def plots(self, results: dict[str, Any]) -> dict[str, str]: ...


PARTS = {name: cast(Part, import_module(f"benchmarks.{name}")) for name in NAMES}
SIZES = ("quick", "short", "full")


def options_of(name: str, size: str) -> dict[str, Any]:
    """What a part is measured with."""
    part = PARTS[name]
    return dict({"quick": part.QUICK, "short": part.SHORT, "full": part.FULL}[size])
