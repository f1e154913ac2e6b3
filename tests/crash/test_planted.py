"""What somebody has written into the store runs nothing: it ends as dead, with the reason."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode

from scrapy_fleet.model import Batch, Entry, Plan, Worker
from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.spiders import SiteSpider

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=20)


class Planted:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def test_planted_requests_run_nothing_and_end_as_dead(tmp_path: Path, url: str | None) -> None:
    mark = tmp_path / "mark"
    bomb = pickle.dumps(Planted(mark))
    target = "=http://127.0.0.1:1/"
    planted = {
        bomb: "has format 128",
        b"\x01" + bomb: "damaged",
        b"\x01" + encode([target, "os.system"]): "'os.system' is not a callback of SiteSpider",
        b"\x01" + encode([target, "closed"]): "'closed' is not a callback of SiteSpider",
        b"\x01" + encode([target, None, None, {"e": "__init__"}]): "'__init__' is not a callback",
        b"\x01" + encode([target, None, None, {"t": "os:system"}]): "not a Request subclass",
        b"\x01" + encode([target, None, None, {"t": "antigravity:Request"}]): "not a Request subclass",
        b"": "empty",
    }
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url) as fleet,
    ):
        with fleet.store(create=True) as store:
            store.push(tuple(Entry("planted", payload) for payload in planted))
            # State and items, too: what a worker loads, and what a reader gets.
            store.join(Worker("w"), Plan(), 60)
            store.commit(Batch(worker="w", seq=1, state={"a": bomb}, items=(bomb,), leave=True))
        worker = fleet.start()
        fleet.finish()
        dead = {row.payload: row.reason or "" for row in fleet.scan("dead")}
        assert dead.keys() == planted.keys()
        for payload, reason in planted.items():
            assert reason in dead[payload]
        assert "spider.state['a'] cannot be read and is left out" in worker.text()
        assert "Traceback" not in worker.text()
        assert not site.lost()
        assert not mark.exists()
