"""What a fleet costs its server while nothing is crawled: memory, idle workers, and a worker's death.

``python -m benchmarks.standing URL WORKERS SECONDS`` is one of the processes with idle workers: each worker
beats and polls as the frontier does when it has had nothing to run for some time.
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import time
from itertools import count, islice
from random import Random
from typing import Any

from benchmarks.host import Host
from benchmarks.measure import ROOT
from benchmarks.peer import fewer, requests
from benchmarks.worker import LinksSpider
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.model import Batch, Entry, Lease, Plan, Rule
from scrapy_fleet.process import this_worker
from scrapy_fleet.settings import open_store
from scrapy_fleet.timing import POLL_IDLE, POLL_LAST

CRAWL = "standing"
BEAT_EVERY = 1.0
WANT = 80
FILL = 500
PROCESSES = 4
SLOT = "www.example.com"


class Idler:
    """A worker as its store sees it."""

    def __init__(self, url: str, ttl: float = 60.0) -> None:
        self.store = open_store(url, CRAWL, durability="full")
        self.worker = this_worker()
        self.plan = Plan(rule=Rule(concurrency=1000))
        self.ttl = ttl
        self._seq = count()
        self.store.join(self.worker, self.plan, ttl)

    def commit(self, **parts: Any) -> tuple[Lease, ...]:
        return self.store.commit(Batch(worker=self.worker.id, seq=next(self._seq), **parts)).leases

    def beat(self) -> int:
        """How many requests came back from workers that died."""
        return self.store.beat(self.worker.id).reaped

    def poll(self) -> tuple[Lease, ...]:
        return self.commit(want=WANT)


def memory(host: Host, most: int) -> dict[str, float]:
    """Bytes on the server for a waiting request and for a seen URL."""
    host.empty()
    host.without_histograms()
    spider = LinksSpider(url="https://www.example.com/")
    codec = Codec(spider)
    keys = Random(0)
    worker = Idler(url_of(host))
    found = {}

    def used() -> int:
        worker.store.close()  # what the server holds for the connection is none of it
        return host.memory()

    for name, number, referer in (("waiting", most, False), ("waiting_referer", fewer(most), True)):
        before = used()
        waiting = requests(spider, number, referer)
        while some := list(islice(waiting, FILL)):
            worker.commit(adds=tuple(Entry(slot=SLOT, payload=codec.encode(each)) for each in some))
        found[name] = (used() - before) / number
    before = used()
    for first in range(0, most, FILL):
        size = min(FILL, most - first)
        worker.commit(marks=tuple(keys.getrandbits(64) - (1 << 63) for _ in range(size)))
    found["seen"] = (used() - before) / most
    worker.store.close()
    host.empty()
    return found


def url_of(host: Host) -> str:
    return f"redis://127.0.0.1:{host.port}/0"


def idle(host: Host, workers: int, seconds: float) -> dict[str, float]:
    """The share of a core that idle workers take of the server, while one page is still under way."""
    host.empty()
    holder = Idler(url_of(host))
    holder.commit(adds=(Entry(slot=SLOT, payload=b"long"),), seeded=True, want=1)
    command = [sys.executable, "-m", "benchmarks.standing", url_of(host)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shares = [len(range(n, workers, PROCESSES)) for n in range(PROCESSES)]
    crowd = [
        subprocess.Popen(
            [*command, str(share), str(seconds + 1)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for share in shares
        if share
    ]
    try:
        for process in crowd:
            assert process.stdout is not None
            process.stdout.readline()  # all its workers have joined
        began, cpu = time.monotonic(), host.cpu()
        while (left := began + seconds - time.monotonic()) > 0:
            holder.beat()
            time.sleep(min(BEAT_EVERY, left))
        cpu, took = host.cpu() - cpu, time.monotonic() - began
        calls = sum(json.loads(process.communicate(timeout=60)[0]) for process in crowd)
    finally:
        for process in crowd:
            process.kill()
    holder.store.close()
    host.empty()
    return {"workers": workers, "server_share": cpu / took, "calls_per_second": calls / (seconds + 1)}


def takeover(host: Host, timeout: float) -> dict[str, float]:
    """Seconds from a worker's last sign of life until another has all it held."""
    host.empty()
    victim, other = Idler(url_of(host), timeout), Idler(url_of(host), timeout)
    victim.commit(adds=tuple(Entry(slot=SLOT, payload=b"%d" % n) for n in range(WANT)), seeded=True)
    held = len(victim.poll())
    victim.beat()
    died = time.monotonic()
    beat_every = min(BEAT_EVERY, timeout / 3)
    while not other.beat():
        time.sleep(beat_every)
    got = len(other.poll())
    while got < held:
        time.sleep(POLL_LAST)
        got += len(other.poll())
    took = time.monotonic() - died
    victim.store.close()
    other.store.close()
    host.empty()
    return {"timeout": timeout, "seconds": took, "held": held}


def main() -> None:
    url, workers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    crowd = [Idler(url) for _ in range(workers)]
    print("ready", flush=True)
    began = time.monotonic()
    chance = Random(os.getpid())
    rhythms = (BEAT_EVERY, POLL_IDLE)
    due = [(began + chance.random() * every, n, every) for n in range(workers) for every in rhythms]
    heapq.heapify(due)
    calls = 0
    while (when := due[0][0]) < began + seconds:
        time.sleep(max(0.0, when - time.monotonic()))
        _, n, every = heapq.heappop(due)
        if every == BEAT_EVERY:
            crowd[n].beat()
        else:
            crowd[n].poll()
        calls += 1
        heapq.heappush(due, (when + every, n, every))
    print(calls)


if __name__ == "__main__":
    main()
