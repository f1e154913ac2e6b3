"""Processes that a command starts."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """The environment of a child that finds the same modules from any folder, and belongs to no project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}  # noqa: PTH100
