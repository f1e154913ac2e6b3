"""``demo``: workers crawl a local site, one of them is killed half-way, and the site says what was lost."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Snapshot
from scrapy_fleet.ops.children import environment
from scrapy_fleet.ops.demo_view import Progress, View, WorkerLine, new_view, print_verdict
from scrapy_fleet.ops.show import count, number, print_json
from scrapy_fleet.ops.site import RunningSite, Shape, running
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.sqlite import SqliteStore

REFRESH = 0.1
CRAWL, FILE = "demo", "demo.db"


class Killed(NamedTuple):
    worker: int
    pages: int
    """How many pages the site had served."""
    held: int
    """How many requests the worker had in hand: no more than these may be repeated."""


class WorkerProcess:
    """One worker: the command that anybody would type, with its log in a file."""

    def __init__(self, number: int, folder: Path, start_url: str) -> None:
        self.number = number
        self.log = folder / f"worker-{number}.log"
        spider = Path(__file__).with_name("demo_spider.py")
        command = [sys.executable, "-m", "scrapy", "runspider", str(spider), "-a", f"url={start_url}"]
        command += ["-s", f"FLEET_URL=sqlite:{folder.absolute() / FILE}"]
        with self.log.open("wb") as log:
            # Away from any project, and from our Ctrl-C: we end the workers ourselves.
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.killed = False

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def reason(self) -> str:
        """How it ended, in Scrapy's words."""
        if self.killed:
            return "killed"
        if not self.ended:
            return "did not end"
        found = re.findall(r"Spider closed \((.*)\)", self._text())
        return str(found[-1]) if found else f"exit code {self.process.returncode}"

    def end_of_log(self, lines: int = 15) -> str:
        return "\n".join(self._text().splitlines()[-lines:])

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Demo:
    """One run: a site, a store to look into, and the workers."""

    def __init__(self, folder: Path, site: RunningSite, store: Store, workers: int, view: View) -> None:
        self.folder = folder
        self.site = site
        self.store = store
        self.view = view
        self.total = site.site.shape.pages
        self.killed: Killed | None = None
        self.workers: list[WorkerProcess] = []
        self._wanted = workers
        self._recent: deque[tuple[float, int]] = deque(maxlen=round(2 / REFRESH))

    def run(self) -> None:
        for _ in range(self._wanted):
            self._start_worker()
        deadline = time.monotonic() + 60 + self.total / 10
        while not all(worker.ended for worker in self.workers) and time.monotonic() < deadline:
            pages, snapshot = self.site.stats()["pages"], self.store.snapshot(0)
            if self.killed is None and pages >= self.total / 2:
                self._kill_one(pages, snapshot)
            self.view.update(self._progress(pages, snapshot))
            time.sleep(REFRESH)
        self.view.update(self._progress(self.site.stats()["pages"], self.store.snapshot(0)))

    def _start_worker(self) -> None:
        self.workers.append(WorkerProcess(len(self.workers) + 1, self.folder, self.site.start_url))

    def _kill_one(self, pages: int, snapshot: Snapshot) -> None:
        """Kill the worker that has most in hand, and start another."""
        held = self._held(snapshot)
        victim = max(self.workers, key=lambda worker: held[worker.process.pid])
        if not held[victim.process.pid]:
            return
        # Stopped first, it cannot commit between our look at what it holds and its end.
        victim.process.send_signal(signal.SIGSTOP)
        in_hand = self._held(self.store.snapshot(0))[victim.process.pid]
        victim.kill()
        victim.killed = True
        self.killed = Killed(victim.number, pages, in_hand)
        self.view.event(
            f"Worker {victim.number} killed (SIGKILL) after {number(pages)} pages, "
            f"with {count(in_hand, 'request')} in hand."
        )
        self._start_worker()
        self.view.event(f"Worker {len(self.workers)} started in its place.")

    @staticmethod
    def _held(snapshot: Snapshot) -> Counter[int]:
        return Counter({worker.pid: worker.leased for worker in snapshot.workers})

    def _progress(self, pages: int, snapshot: Snapshot) -> Progress:
        now, held = time.monotonic(), self._held(snapshot)
        self._recent.append((now, pages))
        began, before = self._recent[0]
        rate = (pages - before) / (now - began) if now > began else 0.0
        lines = []
        for worker in self.workers:
            pid = worker.process.pid
            if worker.killed and self.killed is not None:
                state, note = "killed", f"by SIGKILL, with {self.killed.held} in hand"
            elif worker.ended:
                state, note = worker.reason, ""
            elif pid in held:
                state, note = "crawling", f"{held[pid]} in hand"
            else:
                state, note = "starting", ""
            lines.append(WorkerLine(worker.number, pid, state, note))
        return Progress(pages, self.total, rate, snapshot.counts, lines)

    def verdict(self) -> dict[str, Any]:
        """What came of it, by the site's log. The keys are stable: ``--json`` prints them."""
        log = self.site.log()
        visits, lost = self.site.visits(), self.site.lost()
        statuses = Counter(line.status for line in log if line.event == "done")
        seconds = log[-1].time - log[0].time if log else 0.0
        items = Counter(_item_pages(self.store))
        counts = self.store.snapshot(0).counts
        bound = self.killed.held if self.killed else 0
        reasons = {str(worker.number): worker.reason for worker in self.workers}
        result: dict[str, Any] = {
            "pages": self.total,
            "reached": len(visits),
            "lost": len(lost),
            "repeated": self.site.repeats(),
            "repeated_at_most": bound,
            "items": items.total(),
            "items_lost": self.total - len(items),
            "items_repeated": items.total() - len(items),
            "dead": counts.dead,
            "redirects": statuses[301] + statuses[302],
            "not_found": statuses[404],
            "server_errors": statuses[500],
            "seconds": round(seconds, 3),
            "pages_per_second": round(len(visits) / seconds, 1) if seconds else 0.0,
            "killed": self.killed._asdict() if self.killed else None,
            "workers": reasons,
        }
        nothing = ("lost", "items_lost", "items_repeated", "dead")
        result["ok"] = (
            not any(result[name] for name in nothing)
            and result["repeated"] <= bound
            and counts.open == 0
            and set(reasons.values()) <= {"finished", "killed"}
        )
        return result


def _item_pages(store: Store) -> Iterator[int]:
    from scrapy_fleet.crawl.plain import unpack

    after = 0
    while rows := store.items(after):
        for _, payload in rows:
            item: Any = unpack(payload)
            yield item["page"]
        after = rows[-1][0]


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="scrapy-fleet-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        taken = any(keep.iterdir())
    except OSError as error:
        raise FleetError(f"The folder {keep} cannot be used: {error.strerror}. Name another one.") from error
    if taken:
        raise FleetError(f"The folder {keep} is not empty. Name a new one for --keep.")
    yield keep


def demo(*, pages: int, workers: int, keep: Path | None, as_json: bool) -> int:
    # A small site answers slowly, so that there is time to kill a worker half-way.
    shape = Shape(
        "random", pages, links=12, seed=7, redirects=0.05, missing=0.05, failing=0.03,
        slow=min(1.0, 200 / pages), delay=(0.05, 0.3),
    )  # fmt: skip
    with ExitStack() as stack:
        folder = stack.enter_context(_folder(keep))
        site = stack.enter_context(running(shape, log=folder / "site.log"))
        store = stack.enter_context(closing(SqliteStore(folder / FILE, CRAWL)))
        run = Demo(folder, site, store, workers, new_view(pages, workers, quiet=as_json))
        try:
            with run.view:
                run.run()
        finally:
            for worker in run.workers:
                worker.kill()
        verdict = run.verdict()
        if as_json:
            print_json(verdict)
        else:
            print_verdict(verdict)
        if not verdict["ok"]:
            for worker in run.workers:
                print(f"\nThe end of {worker.log.name}:\n{worker.end_of_log()}", file=sys.stderr)
        elif keep is not None and not as_json:
            print(f"\nThe crawl and all logs are in {keep}. Look around:")
            print(f"  scrapy-fleet status --url sqlite:{keep / FILE}")
    return 0 if verdict["ok"] else 1
