"""Crawls that stock Scrapy began with a job directory go on with the fleet, and the other way round."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest

from benchmarks.jobdir import Bench, ended
from scrapy_fleet.ops.site import Shape, running

SHAPE = Shape("links", pages=250, links=8, seed=3, slow=0.2, delay=(0.02, 0.05))
SLOW = Shape("links", pages=250, links=8, seed=3, slow=1.0, delay=(0.02, 0.1))
FLAT = "scrapy.pqueues.ScrapyPriorityQueue"


def digest(folder: Path) -> dict[str, str]:
    """Every file of a folder, with what is in it."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.crash
def test_after_a_kill_only_what_was_in_flight_is_missing(tmp_path: Path) -> None:
    with running(SHAPE) as site:
        bench = Bench(site, tmp_path)
        process = bench.stock("job")
        site.wait(pages=90)
        process.kill()
        process.wait()
        fetched, left, files = site.visits(), bench.left("job"), digest(tmp_path / "job")
        told = bench.bring("job", "store")
        assert told["brought"] == told["readable"]
        assert told["crashed"]
        # Repeating it changes nothing, and the directory is never changed.
        assert bench.bring("job", "store")["brought"] == 0
        assert digest(tmp_path / "job") == files
        assert ended(bench.fleet("sqlite:store"))
        log = (tmp_path / "fleet.log").read_text()
        assert "Spider closed (finished)" in log, log
        assert site.lost() <= site.site.pages() - fetched.keys() - left


def test_after_a_clean_stop_nothing_is_missing_and_nothing_comes_twice(tmp_path: Path) -> None:
    settings = {
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.MarshalFifoDiskQueue",
        "SCHEDULER_PRIORITY_QUEUE": FLAT,
    }
    with running(SLOW) as site:
        bench = Bench(site, tmp_path, settings)
        process = bench.stock("job")
        site.wait(pages=60)
        process.send_signal(signal.SIGINT)
        assert ended(process)
        # What is marshalled needs no trust, but spider.state is a pickle.
        told = bench.bring("job", "store")
        assert (told["crashed"], told["run_seeds"], told["state"]) == ("", False, ["pages"])
        assert ended(bench.fleet("sqlite:store"))
        if told["brought"]:
            assert "Resuming crawl 'site'" in (tmp_path / "fleet.log").read_text()
        assert site.lost() == set()
        assert site.repeats() == 0
        assert max(site.arrivals().values()) == 1


def test_there_and_back(tmp_path: Path) -> None:
    """Stock Scrapy, the fleet, stock Scrapy: each page once."""
    with running(SLOW) as site:
        bench = Bench(site, tmp_path)
        process = bench.stock("job")
        site.wait(pages=50)
        process.send_signal(signal.SIGINT)
        assert ended(process)
        bench.bring("job", "store")
        process = bench.fleet("sqlite:store")
        site.wait(pages=120)
        process.send_signal(signal.SIGINT)
        assert ended(process)
        told = bench.command("export", "jobdir", "site", "back", "--spider", "spider.py", "--url", "store")
        assert told["unwritable"] == {}
        name, _, value = told["setting"].partition(" = ")
        assert ended(bench.stock("back", **{name: value.strip("'")}))
        if told["requests"]:
            log = (tmp_path / "stock-back.log").read_text()
            assert f"Resuming crawl ({told['requests']} requests scheduled)" in log
        assert site.lost() == set()
        assert site.repeats() == 0
