"""Tasks: none is lost, whatever happens to the workers; a bad one loses nothing but itself."""

from __future__ import annotations

import json
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.pushing import task_entry
from tests.crash.fleet import Fleet
from tests.crash.task_spiders import GatedSpider, ManySpider, TaskSpider

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=300, slow=0.1, delay=(0.02, 0.1))
SMALL = Shape("tree", pages=20)


class Mine:
    """Runs code when it is unpickled."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.file),)


def push(fleet: Fleet, *tasks: bytes) -> None:
    with fleet.store(create=True) as store:
        for first in range(0, len(tasks), 100):
            store.push(tuple(task_entry(task) for task in tasks[first : first + 100]))


def pages(first: int, last: int) -> list[bytes]:
    return [b"/p/%d" % number for number in range(first, last)]


def test_none_is_lost_when_workers_are_killed(tmp_path: Path, url: str | None) -> None:
    with running(SHAPE) as site, Fleet(tmp_path, TaskSpider, url=url, site=site.url("")) as fleet:
        push(fleet, *pages(0, 100))
        for _ in range(3):
            fleet.start()
        for killed in range(3):
            site.wait(pages=40 + 60 * killed)
            fleet.workers[killed].kill()
            push(fleet, *pages(100 + 50 * killed, 150 + 50 * killed))
            fleet.start()
        push(fleet, *pages(250, 300))
        fleet.finish()
        assert not site.lost()
        assert fleet.items() == list(range(SHAPE.pages))
        assert fleet.snapshot().counts.dead == 0


def test_a_task_that_gives_many_requests(tmp_path: Path, url: str | None) -> None:
    with running(SHAPE) as site, Fleet(tmp_path, ManySpider, url=url, site=site.url("")) as fleet:
        push(fleet, b"0-240", b"240-300")
        fleet.start()
        site.wait(pages=30)
        fleet.workers[0].kill()
        fleet.start()
        fleet.finish()
        assert not site.lost()


def test_a_worker_that_is_told_to_end_in_the_middle_of_a_task(tmp_path: Path, url: str | None) -> None:
    gate = tmp_path / "gate"
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, GatedSpider, url=url, site=site.url(""), gate=str(gate)) as fleet,
    ):
        push(fleet, b"300")
        first = fleet.start()
        site.wait(pages=100)
        first.signal(signal.SIGTERM)
        assert first.ended()["finish_reason"] == "shutdown"
        counts = fleet.snapshot().counts
        assert (counts.leased, counts.dead) == (0, 0)
        gate.touch()
        fleet.start()
        fleet.finish()
        assert not site.lost()


def test_a_bad_task_loses_nothing_but_itself(tmp_path: Path, url: str | None) -> None:
    mine = tmp_path / "it ran"
    page = "http://127.0.0.1:9/"
    bad = [
        b"\xff\xfe",
        b"no url",
        b"{",
        b"[1]",
        b'"http://a/"',
        b"{}",
        b'{"url": null}',
        b'{"url": 5}',
        b'{"url": "no scheme"}',
        b'{"url": "http://a/", "unknown": 1}',
        b'{"url": "http://a/", "headers": []}',
        b'{"url": "http://a/", "body": "", "json": {}}',
        b'{"url": "http://a/", "body_base64": "?"}',
        pickle.dumps(Mine(str(mine))),
        json.dumps({"url": page, "callback": "os.system"}).encode(),
        *(
            json.dumps({"url": page, "callback": name}).encode()
            for name in ("closed", "__init__", "_hidden", "make_requests", "spider_idle", "start", "nothing")
        ),
        json.dumps({"url": page, "errback": "log"}).encode(),
    ]
    with running(SMALL) as site, Fleet(tmp_path, TaskSpider, url=url, site=site.url("")) as fleet:
        good = pages(0, 20)
        push(fleet, *(task for pair in zip(bad, good, strict=False) for task in pair), *bad[20:])
        fleet.start()
        fleet.finish()
        assert not site.lost()
        dead = {row.payload[1:]: row.reason or "" for row in fleet.scan("dead")}
        assert dead.keys() == set(bad)
        assert all(dead.values())
        assert "no url" in dead[b"{}"]
        assert "UTF-8" in dead[b"\xff\xfe"]
        assert "not a callback of TaskSpider" in dead[bad[14]]
        assert not mine.exists()
        with fleet.store() as store:
            assert store.requeue() == len(bad)
        fleet.start()
        fleet.finish()
        assert fleet.snapshot().counts.dead == len(bad)


def test_a_task_may_be_a_whole_request(tmp_path: Path) -> None:
    with running(SMALL) as site, Fleet(tmp_path, TaskSpider, site=site.url("")) as fleet:
        task = {
            "url": site.url("/p/3"),
            "method": "POST",
            "headers": {"X-One": "1"},
            "cookies": {"a": "b"},
            "body": "text",
            "meta": {"more": [1, None]},
            "cb_kwargs": {"word": "given"},
            "priority": 7,
            "callback": "parse_whole",
        }
        push(
            fleet, json.dumps(task).encode(), json.dumps({"url": site.url("/p/4"), "json": {"a": 1}}).encode()
        )
        fleet.start()
        fleet.finish()
        assert fleet.whole_items() == [
            {
                "page": 3,
                "method": "POST",
                "headers": ["1", "a=b"],
                "body": "text",
                "more": [1, None],
                "word": "given",
                "priority": 7,
            },
            {"page": 4},
        ]
