"""``snapshot`` and ``restore``: the same crawl in another store."""

from __future__ import annotations

import io
import json
import uuid
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scrapy_fleet.model import Batch, Entry, Outcome, Override, Plan, SeenPlan, Snapshot, Worker
from scrapy_fleet.ops.cli import main
from scrapy_fleet.ops.snapshot_file import Damaged, check
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from tests.servers import redis_binary, required, shared_server, valkey_binary

PLAN = Plan()


def fill(store: Store, pages: int = 300, plan: Plan = PLAN) -> None:
    """Some waiting, some done, one dead; nobody is in it in the end."""
    worker = Worker("w")
    store.join(worker, plan, 60)
    adds = tuple(Entry(f"host{n % 3}", b"%d" % n, n % 2, n * 7919, seed=n == 5) for n in range(pages))
    leases = store.commit(Batch(worker="w", seq=1, adds=adds, want=20)).leases
    outcomes = tuple(Outcome(lease.token, items=(b"item %d" % lease.token,)) for lease in leases[1:])
    dead = Outcome(leases[0].token, dead="a bad end")
    store.commit(
        Batch(worker="w", seq=2, outcomes=(dead, *outcomes), stats={"n": 2.5}, state={"key": b"\1x"})
    )
    store.override("host1", Override(delay=1.5))
    store.write_paper("robots", b"Disallow")
    store.commit(Batch(worker="w", seq=3, marks=(-1, -2), seeded=True, leave=True))


def fleet(*words: str, code: int = 0) -> Any:
    """What a command says: with ``--json`` if it ends well, else in words."""
    said, wrong = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(wrong):
        ended = main([*words, "--json"])
    assert ended == code, said.getvalue() + wrong.getvalue()
    return json.loads(said.getvalue()) if code == 0 else wrong.getvalue()


def looked(url: str, crawl: str = "c") -> tuple[Snapshot, Any]:
    """All that can be seen of a crawl, but for where it is."""
    with closing(open_store(url, crawl, create=False)) as store:
        snapshot = store.snapshot(100)
        slots = {slot.name: (slot.waiting, slot.done, slot.override) for slot in snapshot.slots}
        rows = [
            [
                (row.payload, row.priority, row.attempts)
                for row in store.scan("waiting", slot=name, limit=1000)
            ]
            for name in sorted(slots)
        ]
        dead, items = store.scan("dead"), store.items(limit=1000)
        seen = sorted(store.seen_keys("", 10_000)[1])
    return replace(snapshot, slots=(), crawl="", workers=()), (slots, rows, dead, items, seen)


@pytest.mark.parametrize("binary", [valkey_binary, redis_binary])
def test_from_one_store_to_another_and_back(binary: Any, tmp_path: Path) -> None:
    server = shared_server(required(binary())).url
    there, name = f"{server}", f"carried-{uuid.uuid4().hex}"
    first, back = f"sqlite:{tmp_path}/first", f"sqlite:{tmp_path}/back"
    with closing(open_store(first, "c")) as store:
        fill(store)
    file, again = tmp_path / "crawl.snapshot", tmp_path / "again.snapshot"
    told = fleet("snapshot", "c", str(file), "--url", first)
    assert told["counts"]["waiting"] == 280
    assert (told["seen"], told["items"]) == (302, 19)
    restored = fleet("restore", str(file), "--url", there, "--crawl", name)
    assert (restored["counts"], restored["seen"], restored["items"]) == (told["counts"], 302, 19)
    assert looked(there, name) == looked(first)
    fleet("snapshot", name, str(again), "--url", there)
    fleet("restore", str(again), "--url", back, "--crawl", "c")
    assert looked(back) == looked(first)
    with closing(open_store(back, "c")) as store:
        joined = store.join(Worker("next"), PLAN, 60)
        assert (joined.resumed, joined.state, joined.seeding.value) == (True, {"key": b"\1x"}, "done")


@pytest.mark.parametrize("seen", [SeenPlan("bloom", capacity=100), SeenPlan("rolling"), SeenPlan("off")])
def test_a_crawl_keeps_its_filter(seen: SeenPlan, tmp_path: Path) -> None:
    server, name = shared_server(required(valkey_binary())).url, f"carried-{uuid.uuid4().hex}"
    first, file, again = f"sqlite:{tmp_path}/first", tmp_path / "crawl.snapshot", tmp_path / "again.snapshot"
    keys = tuple(range(0, 3000, 7))
    with closing(open_store(first, "c")) as store:
        fill(store, plan=Plan(seen=seen))
        count = store.mark(keys)
    fleet("snapshot", "c", str(file), "--url", first)
    fleet("restore", str(file), "--url", server, "--crawl", name)
    fleet("snapshot", name, str(again), "--url", server)
    fleet("restore", str(again), "--url", f"sqlite:{tmp_path}/back", "--crawl", "c")
    asked = tuple(range(4000))
    views = []
    for url, crawl in ((first, "c"), (server, name), (f"sqlite:{tmp_path}/back", "c")):
        with closing(open_store(url, crawl, create=False)) as store:
            view = store.seen_info()
            views.append((view.plan, view.count, view.layers, store.seen(asked)))
    assert views[0] == views[1] == views[2]
    assert views[0][0] == seen
    assert views[0][1] >= count


@pytest.fixture
def crawl(tmp_path: Path) -> tuple[str, Path]:
    url = f"sqlite:{tmp_path}/store"
    with closing(open_store(url, "c")) as store:
        fill(store)
    file = tmp_path / "crawl.snapshot"
    fleet("snapshot", "c", str(file), "--url", url)
    return url, file


def test_a_file_that_is_not_whole_restores_nothing(crawl: tuple[str, Path], tmp_path: Path) -> None:
    _, file = crawl
    data = file.read_bytes()
    assert check(file).crawl == "c"
    bad = tmp_path / "bad"
    step = max(1, len(data) // 150)
    flipped = [data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] for at in range(0, len(data), step)]
    cut = [data[:at] for at in range(0, len(data), step)]
    for damaged in [*cut, *flipped, data + b"x"]:
        bad.write_bytes(damaged)
        with pytest.raises(Damaged, match="Nothing was restored"):
            check(bad)
    said = fleet("restore", str(bad), "--url", str(tmp_path / "elsewhere"), code=2)
    assert "checksum" in said
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_there_is_not_written_over(crawl: tuple[str, Path]) -> None:
    url, file = crawl
    before = looked(url)
    assert "--replace" in fleet("snapshot", "c", str(file), "--url", url, code=2)
    assert "There is a crawl 'c'" in fleet("restore", str(file), "--url", url, code=2)
    assert looked(url) == before
    with closing(open_store(url, "c")) as store:
        store.requeue()
    fleet("restore", str(file), "--url", url, "--replace")
    after = looked(url)
    assert after[1] == before[1]
    assert after[0].counts == before[0].counts


def test_workers_must_be_paused_or_gone(crawl: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = crawl
    new = str(tmp_path / "new")
    with closing(open_store(url, "c")) as store:
        store.join(Worker("busy"), PLAN, 60)
        [lease] = store.commit(Batch(worker="busy", seq=1, want=1)).leases
        assert "Pause them" in fleet("snapshot", "c", new, "--url", url, code=2)
        store.control("pause")
        assert "1 request in hand" in fleet("snapshot", "c", new, "--url", url, code=2)
        store.commit(Batch(worker="busy", seq=2, releases=(lease.token,)))
        assert fleet("snapshot", "c", new, "--url", url)["counts"]["waiting"] == 280
        # What dead workers held goes back first.
        store.control("run")
        store.join(Worker("dying"), PLAN, 0.001)
        store.commit(Batch(worker="busy", seq=3, leave=True))
        store.commit(Batch(worker="dying", seq=1, want=3))
        while any(worker.deadline_in > 0 for worker in store.snapshot(0).workers):
            pass
        told = fleet("snapshot", "c", new, "--url", url, "--replace")
        assert (told["counts"]["waiting"], told["counts"]["leased"]) == (280, 0)
    fleet("restore", new, "--url", str(tmp_path / "copy"))
    with closing(open_store(f"sqlite:{tmp_path}/copy", "c")) as store:
        assert sorted(row.attempts for row in store.scan("waiting", limit=1000))[-3:] == [1, 1, 1]


def test_a_paused_crawl_is_restored_paused(crawl: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = crawl
    with closing(open_store(url, "c")) as store:
        store.control("pause")
    fleet("snapshot", "c", str(tmp_path / "new"), "--url", url)
    assert fleet("restore", str(tmp_path / "new"), "--url", str(tmp_path / "copy"))["mode"] == "pause"
