"""Where a process spends its CPU time, by looking at it again and again.

cProfile makes every call dearer, so that code of many small functions looks slower than it is. A look only
costs when it happens, and its own cost is left out. The looks go by CPU time, as often as the kernel can
(about 250 times a second of it): by the clock, most would find a worker where it waits. At each look, every
thread's CPU time since the look before is given to what that thread is doing, so that the parts add up to
what was used.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import defaultdict
from types import CodeType, FrameType

SPIDER, OTHER = "spider", "other"
HTTP = "HTTP client and event loop"
GROUPS = {
    "scrapy_fleet": "scrapy-fleet",
    "scrapy_redis": "scrapy-redis",
    "scrapy.core.downloader.handlers": HTTP,
    "twisted": HTTP,
    "asyncio": HTTP,
    "selectors": HTTP,
    "scrapy": "Scrapy",
    "queuelib": "Scrapy",
    "itemadapter": "Scrapy",
    "pydispatch": "Scrapy",
}
"""By the module's name, the first that fits. What fits none belongs to who called it."""
INTERVAL = 0.001


class Sampler:
    """While it is entered: ``seconds`` of CPU by group."""

    def __init__(self, callback: CodeType) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.looks = 0
        # With the file, since code that looks the same in two files is equal.
        self._groups: dict[tuple[str, CodeType], str | None] = {(callback.co_filename, callback): SPIDER}
        self._used: dict[int, float] = {}
        self._own = 0.0

    def __enter__(self) -> Sampler:
        self._main = threading.get_ident()
        self._process = time.process_time()
        self._used = {each: _cpu(each) for each in sys._current_frames()}
        self._earlier = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._earlier)
        process = time.process_time() - self._process
        # Threads that ended between two looks, and what came after the last one.
        self.seconds[OTHER] += max(0.0, process - self._own - sum(self.seconds.values()))

    def _look(self, number: int, here: FrameType | None) -> None:
        began = time.thread_time()
        for thread, frame in sys._current_frames().items():
            if thread == self._main:
                used, frame = began, here or frame
            else:
                used = _cpu(thread)
            self.seconds[self.group(frame)] += used - self._used.get(thread, 0.0)
            self._used[thread] = used
        self.looks += 1
        self._used[self._main] = time.thread_time()
        self._own += self._used[self._main] - began

    def group(self, frame: FrameType | None) -> str:
        """That of the innermost frame that has one; but what the spider's callback calls is the spider's."""
        found = None
        while frame is not None:
            group = self._group_of(frame)
            if group == SPIDER:
                return SPIDER
            found = found or group
            frame = frame.f_back
        return found or OTHER

    def _group_of(self, frame: FrameType) -> str | None:
        code = frame.f_code.co_filename, frame.f_code
        if code not in self._groups:
            module = f"{frame.f_globals.get('__name__')}."
            fitting = (group for start, group in GROUPS.items() if module.startswith(f"{start}."))
            self._groups[code] = next(fitting, None)
        return self._groups[code]


def _cpu(thread: int) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
