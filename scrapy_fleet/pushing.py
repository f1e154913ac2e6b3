"""Tasks as entries: what producers push. What becomes of them is in ``crawl/tasks.py``."""

from __future__ import annotations

import secrets

from scrapy_fleet.model import TASKS, Entry

TASK = b"\x02"
"""What the payload of a task begins with, where that of a request has its version."""


def task_entry(data: bytes, priority: int = 0, *, once: bool = True) -> Entry:
    """A task as a store keeps it; ``once``: the very same entry, pushed again, is recognised."""
    key = int.from_bytes(secrets.token_bytes(8), "big", signed=True) if once else None
    # In the order they came, and behind requests of their priority.
    return Entry(TASKS, TASK + data, priority, key, seed=True)
