"""What a queue has given away, and which queues there are, as a killed process leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.pqueues import DownloaderAwarePriorityQueue, ScrapyPriorityQueue

from scrapy_fleet.crawl.in_hand import InHand
from scrapy_fleet.crawl.queue_index import QueueIndex


class Shop(Spider):
    name = "shop"

    def parse_item(self, response: Any) -> None: ...


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in-hand.db"


def killed(in_hand: InHand) -> None:
    in_hand._notes.close()


def urls(requests: list[Request]) -> list[str]:
    return [request.url[-1] for request in requests]


def a_request(n: int, **fields: Any) -> Request:
    return Request(f"http://a.example/{n}", **fields)


def test_what_ended_is_struck_off(file: Path) -> None:
    in_hand = InHand(file, Shop())
    requests = [a_request(n) for n in range(6)]
    in_hand.keep(requests[0])
    in_hand.keep(requests[1])
    for request in requests[1:]:
        in_hand.start(request)
    in_hand.settle({requests[2], requests[3]})
    in_hand.drop(requests[3])
    killed(in_hand)
    assert urls(InHand(file, Shop()).left_over(5)) == ["0", "2"]


def test_nothing_is_left_of_a_crawl_that_ended_well(file: Path) -> None:
    in_hand = InHand(file, Shop())
    request = a_request(1)
    in_hand.start(request)
    in_hand.settle(set())
    in_hand.close()
    assert not file.exists()


def test_a_request_that_kills_is_given_up(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that only waited meanwhile is not."""
    for deaths in range(4):
        in_hand = InHand(file, Shop())
        left = in_hand.left_over(3)
        if not deaths:
            left = [a_request(0), a_request(1)]
            in_hand.keep(left[0])
        assert urls(left) == (["0", "1"] if deaths < 3 else ["0"])
        if deaths < 3:
            in_hand.start(left[1])
            killed(in_hand)
    assert "http://a.example/1> is given up: the process died 3 times while it ran." in caplog.text


def test_what_cannot_be_read_any_more_stays_and_is_told(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    spider = Shop()
    in_hand = InHand(file, spider)
    in_hand.start(a_request(1, callback=spider.parse_item))
    in_hand.start(a_request(2, callback=lambda response: None))
    killed(in_hand)
    in_hand = InHand(file, Spider("other"))
    assert in_hand.left_over(5) == []
    in_hand.close()
    assert "parse_item" in caplog.text
    assert urls(InHand(file, spider).left_over(5)) == ["1"]


def test_a_full_disk_is_told_and_does_not_stop_the_crawl(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_hand = InHand(file, Shop())
    in_hand._notes._connection.execute("PRAGMA max_page_count = 1")
    for n in range(2):
        in_hand.start(a_request(n, body=b"x" * 10_000))
    assert caplog.text.count("is full") == 1
    in_hand.settle(set())
    in_hand.close()


class OneHost:
    """As much of the seam as the index needs."""

    def slot_key(self, request: Request) -> str:
        return request.url.split("/")[2]


def test_the_queues_of_a_killed_crawl(tmp_path: Path) -> None:
    for kind, listed, wanted in (
        (ScrapyPriorityQueue, [0], [-7, 0, 3]),
        (DownloaderAwarePriorityQueue, {"b.example": [0]}, {"a.example": [-7, 3], "b.example": [0]}),
    ):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        index = QueueIndex(folder, kind, OneHost())  # type: ignore[arg-type]
        assert not index.read()
        index.write(listed)
        for priority in (7, -3, 7):
            index.note(a_request(1, priority=priority))
        added = folder / "added.jsonl"
        assert len(added.read_text().split()) == 4  # two lines of two values: each is noted once
        added.write_text(added.read_text() + '\n["c.exam')
        assert QueueIndex(folder, kind, OneHost()).read() == wanted  # type: ignore[arg-type]
        index.write(listed)
        assert json.loads((folder / "active.json").read_text()) == listed == index.read()
