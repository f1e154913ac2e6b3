"""What is missing after a crash of stock Scrapy with a job directory: when it resumes, and after an import.

A crawl with ``JOBDIR`` is killed (SIGKILL) at a random page. From copies of what it left on the disk, stock
Scrapy resumes it, and the fleet finishes it after ``scrapy fleet import jobdir``. The site counts.

    python -m benchmarks.jobdir [--quick | --short] [--pages 5000] [--rounds 3]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request
from scrapy.utils.request import fingerprint

from benchmarks import command
from benchmarks.measure import ROOT, Goal, table
from scrapy_fleet.ops.jobdir.reading import Found, Job
from scrapy_fleet.ops.jobdir.requests import fields_of
from scrapy_fleet.ops.jobdir.seen_file import SeenCounts
from scrapy_fleet.ops.site import RunningSite, Shape, running

LIMIT = 600.0
SPIDER = """
import scrapy

class Site(scrapy.Spider):
    name = "site"

    async def start(self):
        yield scrapy.Request(self.start_url)

    def parse(self, response):
        self.state["pages"] = self.state.get("pages", 0) + 1
        yield {"page": response.css("#number::text").get()}
        yield from response.follow_all(css="a")
"""
SETTINGS: dict[str, Any] = {
    "LOG_LEVEL": "INFO",
    "ROBOTSTXT_OBEY": 0,
    "TELNETCONSOLE_ENABLED": 0,
    "REMOTE_CONTROL_ENABLED": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
}
FLEET = {"ADDONS": json.dumps({"scrapy_fleet.Addon": 500})}
QUEUES = {
    "LIFO (default)": "scrapy.squeues.PickleLifoDiskQueue",
    "FIFO": "scrapy.squeues.PickleFifoDiskQueue",
    "SQLite": "scrapy.squeues.PickleLifoSQLiteQueue",
}
WAYS = {"stock": "Scrapy resumes", "import": "import", "forget": "import with `--forget-seen`"}
"""How a crawl goes on, from a copy of what was left."""


class Bench:
    """One site, one spider, and the ways to crawl it."""

    def __init__(self, site: RunningSite, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self.site = site
        self.folder = folder
        self.settings = settings or {}
        self._env = {**os.environ, "PYTHONPATH": str(ROOT)}
        (folder / "spider.py").write_text(SPIDER)

    def crawl(self, settings: dict[str, Any], log: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "scrapy", "runspider", "spider.py"]
        command += ["-a", f"start_url={self.site.start_url}"]
        for name, value in {**SETTINGS, **self.settings, **settings}.items():
            command += ["-s", f"{name}={value}"]
        with (self.folder / log).open("wb") as file:
            return subprocess.Popen(command, cwd=self.folder, env=self._env, stdout=file, stderr=file)

    def stock(self, jobdir: str, **settings: Any) -> subprocess.Popen[bytes]:
        return self.crawl({"JOBDIR": jobdir, **settings}, f"stock-{jobdir}.log")

    def fleet(self, url: str, **settings: Any) -> subprocess.Popen[bytes]:
        return self.crawl({"FLEET_URL": url, **FLEET, **settings}, "fleet.log")

    def command(self, *words: str) -> Any:
        """What a command of ours answers."""
        own = [word for name, value in self.settings.items() for word in ("-s", f"{name}={value}")]
        command = [sys.executable, "-m", "scrapy_fleet.ops.cli", *words, "--json", *own]
        done = subprocess.run(
            command, cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=LIMIT
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def bring(self, jobdir: str, url: str, *words: str) -> Any:
        more = ("--spider", "spider.py", "--url", url, "--trust-pickle", "--yes", *words)
        return self.command("import", "jobdir", jobdir, *more)

    def left(self, jobdir: str) -> set[str]:
        """The paths of pages that a crawl may still get to, with what it left on the disk: what waits, the
        start page, and what is linked from there and was not seen."""
        job = Job(self.folder / jobdir)
        seen = {*job.fingerprints(SeenCounts())}
        waiting = [self.site.start_url]
        for queue in job.queues:
            waiting += [fields_of(record.data)["url"] for record in queue.records(Found())]
        site = self.site.site
        found = {url.partition(f":{site.port}")[2] for url in waiting}
        todo = [*found]
        while todo:
            for path in site.links(int(todo.pop().rpartition("/")[2])):
                if path not in found and fingerprint(Request(site.url(path))) not in seen:
                    found.add(path)
                    todo.append(path)
        return found


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it came to its end; a crawl that does not is stopped."""
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def one(kind: str, pages: int, at: int, seed: int) -> dict[str, Any]:
    """Kill a crawl at a page, and go on in each of the ways."""
    shape = Shape("links", pages=pages, links=20, seed=seed)
    result: dict[str, Any] = {"queue": kind, "killed_at": at}
    with tempfile.TemporaryDirectory(prefix="fleet-jobdir-") as name, running(shape) as site:
        bench = Bench(site, Path(name), {"SCHEDULER_DISK_QUEUE": QUEUES[kind]})
        process = bench.stock("job")
        site.wait(pages=at, timeout=LIMIT)
        process.send_signal(signal.SIGKILL)
        process.wait()
        fetched = site.visits()
        reachable = bench.left("job")
        result["fetched"] = len(fetched)
        for way in WAYS:
            before = site.visits()
            shutil.copytree(bench.folder / "job", bench.folder / way)
            if way == "stock":
                whole = ended(bench.stock(way))
            else:
                told = bench.bring(way, f"{way}-store", *(["--forget-seen"] if way == "forget" else []))
                result["on_disk"] = told["readable"]
                whole = ended(bench.fleet(f"sqlite:{way}-store"))
            now = Counter(site.visits())
            now.subtract(before)
            got = {path for path, times in now.items() if times > 0}
            missing = site.site.pages() - fetched.keys() - got
            result[way] = {
                "missing": len(missing),
                "twice": sum(times for path, times in now.items() if path in fetched),
                "ended": whole,
                # Missing, though they could have been reached with what was on the disk.
                "avoidable": len(missing & reachable),
            }
    return result


def measure(pages: int, rounds: int, queues: Sequence[str] = tuple(QUEUES), seed: int = 1) -> dict[str, Any]:
    chance = Random(seed)
    runs = []
    for kind in queues:
        for _ in range(rounds):
            at = chance.randrange(pages // 10, pages * 9 // 10)
            found = one(kind, pages, at, seed)
            runs.append(found)
            missing = ", ".join(f"{way} {found[way]['missing']}" for way in WAYS)
            print(f"{kind}, killed at {found['fetched']} of {pages} pages; missing: {missing}", flush=True)
    return {"pages": pages, "runs": runs}


def tables(results: dict[str, Any]) -> str:
    rows = []
    for run in results["runs"]:
        row = [run["queue"], f"{run['fetched']:,}", f"{run['on_disk']:,}"]
        for way in WAYS:
            told = f"{run[way]['missing']:,} ({run[way]['twice']:,})"
            row.append(told if run[way]["ended"] else f"{told}, did not end")
        rows.append(row)
    head = ["queue", "fetched when killed", "waiting in the files", *WAYS.values()]
    return (
        f"Of {results['pages']:,} pages, missing in the end (and fetched twice) after a SIGKILL:\n\n"
        f"{table(head, rows)}"
    )


def goals(results: dict[str, Any]) -> list[Goal]:
    """Nothing is missing after the import that could be reached from what was on the disk."""
    missed: dict[str, int] = {}
    for run in results["runs"]:
        missed[run["queue"]] = missed.get(run["queue"], 0) + run["import"]["avoidable"]
    return [
        Goal(f"reachable pages missing after an import, {queue}", number, 0, at_most=True, form="{:.0f}")
        for queue, number in missed.items()
    ]


def noise(results: dict[str, Any]) -> list[str]:
    """Pages are counted: nothing of it depends on the machine's speed."""
    return []


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    titles = {"stock": "Scrapy resumes", "import": "scrapy-fleet, after the import"}
    series = {
        run["queue"]: {title: float(run[way]["missing"]) for way, title in titles.items()}
        for run in results["runs"]
    }
    title = f"Missing of {results['pages']:,} pages after a SIGKILL"
    return {"jobdir.svg": plot.groups(title, series, unit="pages, lower is better")}


QUICK: dict[str, Any] = {"pages": 60, "rounds": 1, "queues": ["LIFO (default)"]}
SHORT: dict[str, Any] = {"pages": 600, "rounds": 1, "queues": ["LIFO (default)"]}
FULL: dict[str, Any] = {"pages": 5000, "rounds": 1}


def main(arguments: list[str] | None = None) -> None:
    parser = command.parser("jobdir", "See what is missing after a crash of stock Scrapy.")
    parser.add_argument("--pages", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--queues", nargs="+", choices=list(QUEUES))
    parser.add_argument("--seed", type=int)
    args = parser.parse_args(arguments)
    options = command.size_of(args, QUICK, SHORT, FULL)
    options |= {
        name: value for name in ("pages", "rounds", "queues", "seed") if (value := getattr(args, name))
    }
    results = measure(**options)
    command.tell(args, results, tables(results), goals(results), noise(results))


if __name__ == "__main__":
    main()
