"""Which queues there are: without the list, a resumed crawl would not find what is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scrapy import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue, ScrapyPriorityQueue

from scrapy_fleet.crawl.seam import Seam


class QueueIndex:
    """Scrapy writes its list, ``active.json``, only when it closes. Here each new queue is noted in a file
    beside it before anything is put into it, so that a killed crawl finds them all again."""

    def __init__(self, folder: Path, queue: type, seam: Seam) -> None:
        self._listed = folder / "active.json"
        self._added = folder / "added.jsonl"
        self._by_host = issubclass(queue, DownloaderAwarePriorityQueue)
        self._knows = self._by_host or issubclass(queue, ScrapyPriorityQueue)
        self._seam = seam
        self._known: set[tuple[str, int]] = set()

    def read(self) -> Any:
        """As the priority queue takes it: priorities, or those of each host."""
        state = json.loads(self._listed.read_text(encoding="utf-8")) if self._listed.exists() else None
        added = self._read_added()
        if not added:
            return state if state is not None else ()
        if self._by_host:
            hosts = {host: set(priorities) for host, priorities in dict(state or {}).items()}
            for host, priority in added:
                hosts.setdefault(host, set()).add(priority)
            return {host: sorted(priorities) for host, priorities in hosts.items()}
        return sorted({*(state or ()), *(priority for _, priority in added)})

    def _read_added(self) -> list[tuple[str, int]]:
        added = []
        for line in self._added.read_text(encoding="utf-8").splitlines() if self._added.exists() else ():
            try:
                host, priority = json.loads(line)
            except ValueError:  # cut off when the process was killed, before the queue was used
                continue
            added.append((host, priority))
        return added

    def note(self, request: Request) -> None:
        """A request is about to be put into its queue."""
        if not self._knows:
            return
        place = (self._seam.slot_key(request) if self._by_host else "", -request.priority)
        if place not in self._known:
            with self._added.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(place)}\n")
            self._known.add(place)

    def write(self, state: Any) -> None:
        """The crawl closes, with these queues left."""
        fresh = self._listed.with_suffix(".new")
        fresh.write_text(json.dumps(state), encoding="utf-8")
        fresh.replace(self._listed)
        self._added.unlink(missing_ok=True)
        self._known.clear()
