"""Tasks as entries: what producers push. What becomes of them is in ``crawl/tasks.py``."""

from __future__ import annotations

from scrapy_fleet.model import TASKS, Entry

TASK = b"\x02"
"""What the payload of a task begins with, where that of a request has its version."""


def task_entry(data: bytes, priority: int = 0) -> Entry:
    """A task as a store keeps it. It has no key: the same task may be pushed again, and a filter that errs
    loses none. In the order they came, and behind requests of their priority."""
    return Entry(TASKS, TASK + data, priority, seed=True)
