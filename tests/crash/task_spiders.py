"""Spiders that are fed with tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from scrapy import Request
from scrapy.http import Response

from scrapy_fleet import FleetSpider, Task


class TaskSpider(FleetSpider):
    """A task is a path of the site, or a request; one item a page."""

    name = "tasks"
    site = ""
    max_idle_time = 1.0

    def make_requests(self, task: Task) -> Any:
        if task.data.startswith(b"/"):
            return Request(self.site + task.text, dont_filter=True)
        return super().make_requests(task)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}

    def parse_whole(self, response: Response, word: str) -> Iterator[Any]:
        request = response.request
        assert request is not None
        yield {
            "page": int(response.css("#number::text").get("")),
            "method": request.method,
            "headers": [(request.headers[name] or b"").decode() for name in ("X-One", "Cookie")],
            "body": request.body.decode(),
            "more": response.meta["more"],
            "word": word,
            "priority": request.priority,
        }

    def closed(self, reason: str) -> None:
        """Scrapy calls it, and nobody else."""

    def _hidden(self, response: Response) -> None:
        raise AssertionError("a task called it")


class GatedSpider(TaskSpider):
    """Stops in the middle of a task until the file ``gate`` exists."""

    gate = ""

    async def make_requests(self, task: Task) -> AsyncIterator[Request]:
        for number in range(int(task.text)):
            if number == int(task.text) // 2:
                while not Path(self.gate).exists():
                    await asyncio.sleep(0.02)
            yield Request(f"{self.site}/p/{number}")


class ManySpider(TaskSpider):
    """A task is a range of pages; more than are made at once. Every second one is not filtered."""

    async def make_requests(self, task: Task) -> AsyncIterator[Request]:
        first, last = map(int, task.text.split("-"))
        for number in range(first, last):
            yield Request(f"{self.site}/p/{number}", dont_filter=number % 2 == 1)
