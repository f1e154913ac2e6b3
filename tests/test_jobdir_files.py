"""Job directories are read as Scrapy wrote them, and as crashes and bad disks left them."""

from __future__ import annotations

import datetime
import decimal
import io
import marshal
import pickle
import shutil
import sqlite3
import uuid
import zoneinfo
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scrapy import FormRequest, Request
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor

from scrapy_fleet.errors import FleetError, Unreadable
from scrapy_fleet.model import Batch, Outcome, Worker
from scrapy_fleet.ops.cli import main
from scrapy_fleet.ops.home import Home
from scrapy_fleet.ops.jobdir.importing import Importing
from scrapy_fleet.ops.jobdir.marshalled import unmarshal
from scrapy_fleet.ops.jobdir.reading import Job
from scrapy_fleet.ops.jobdir.reporting import Report, show
from scrapy_fleet.ops.jobdir.seen_file import SeenCounts, fingerprints
from scrapy_fleet.ops.jobdir.unpickling import unpickle
from scrapy_fleet.store.memory import MemoryStore
from tests.jobs import KINDS, SPIDER, Books, StockJob, requests

each_kind = pytest.mark.parametrize("kind", KINDS)


def home_of(kind: str = KINDS[0], **more: Any) -> Home:
    return Home(Books, {"SCHEDULER_DISK_QUEUE": f"scrapy.squeues.{kind}", **more})  # type: ignore[arg-type]


def importing(folder: Path, kind: str = KINDS[0], *, trust: bool = True, **more: Any) -> Importing:
    home = home_of(kind, **more)
    return Importing(Job(folder, "fifo" if "Fifo" in kind else "lifo"), home, 1, trust_pickle=trust)


def brought(work: Importing, store: MemoryStore | None = None) -> tuple[Report, MemoryStore, dict[str, int]]:
    store = store or MemoryStore("books")
    report = work.look("auto")
    return report, store, work.bring(store, report, seen=True)


def handed_out(store: MemoryStore, home: Home) -> list[Request]:
    """What a worker gets, one after the other."""
    store.join(Worker("w"), home.options.plan, 60)
    found: list[Request] = []
    seq = 0
    while leases := store.commit(Batch(worker="w", seq=(seq := seq + 1), want=1)).leases:
        found += [home.codec.decode(lease.payload) for lease in leases]
        store.commit(Batch(worker="w", seq=(seq := seq + 1), leave=False, outcomes=outcomes(leases)))
    return found


def outcomes(leases: Any) -> Any:
    return tuple(Outcome(lease.token) for lease in leases)


# As Scrapy wrote them


@pytest.mark.parametrize("by_slot", [True, False])
@each_kind
def test_all_queues_in_their_order(kind: str, by_slot: bool, tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job", kind, by_slot=by_slot)
    given = requests(hosts=1)
    start = [Request(f"https://host0.example/start/{n}", dont_filter=True, meta={"is_start_request": True})
             for n in range(3)]  # fmt: skip
    job.push([*given, *start])
    assert job.pop() is not None
    job.close({"n": {1, 2}, "when": datetime.date(2024, 2, 29)})
    work = importing(tmp_path / "job", kind, SCHEDULER_MEMORY_QUEUE=memory_queue(kind))
    report, store, done = brought(work)
    assert (report.crashed, report.unreadable, report.repeats) == ("", 0, 0)
    assert done == {"brought": 14, "known": 0}
    assert report.seen.read == sum(not request.dont_filter for request in given)
    assert report.state == ["n", "when"]
    assert [request.url for request in handed_out(store, work.home)] == StockJob(
        tmp_path / "job", kind, by_slot=by_slot
    ).pop_all()


def memory_queue(kind: str) -> str:
    return f"scrapy.squeues.{'Fifo' if 'Fifo' in kind else 'Lifo'}MemoryQueue"


def test_a_fifo_directory_keeps_its_order_in_a_lifo_crawl(tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job", "PickleFifoDiskQueue")
    job.push(requests(hosts=1))
    job.close()
    work = importing(tmp_path / "job", "PickleFifoDiskQueue")
    _, store, _ = brought(work)
    expected = StockJob(tmp_path / "job", "PickleFifoDiskQueue").pop_all()
    assert [request.url for request in handed_out(store, work.home)] == expected


def test_requests_come_whole(tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job")
    page = HtmlResponse("https://a.example/", body=b"<a href='/x'>a <b>link</b></a>", encoding="utf-8")
    text = LinkExtractor().extract_links(page)[0].text
    meta = {
        "plain": [1, 2.5, None, True, "x", b"y", (1,), {2}, frozenset({3}), 4j, 1 << 80],
        "times": [datetime.datetime(2024, 2, 29, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))],
        "more": [decimal.Decimal("1.10"), uuid.UUID(int=7), datetime.timedelta(1)],
        "link": text,
    }
    form = FormRequest("https://a.example/form", formdata={"a": "b"}, callback=SPIDER.parse_book, meta=meta)
    given = [*requests(5, hosts=1), form.replace(priority=9)]
    job.push(given)
    job.close()
    work = importing(tmp_path / "job")
    report, store, _ = brought(work)
    assert [each.unreadable for each in report.queues if each.unreadable] == []
    got = {request.url: request for request in handed_out(store, work.home)}
    for request in given:
        other = got[request.url]
        assert type(other) is type(request)
        ours, theirs = other.to_dict(spider=work.home.spider), request.to_dict(spider=SPIDER)
        assert {**ours, "meta": None} == {**theirs, "meta": None}
    assert got[form.url].meta["plain"] == meta["plain"]
    assert (got[form.url].meta["times"], got[form.url].meta["more"]) == (meta["times"], meta["more"])
    assert type(got[form.url].meta["link"]) is str


def test_nothing_is_brought_twice(tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job")
    again = [Request("https://a.example/poll", dont_filter=True) for _ in range(3)]
    start = [
        Request("https://a.example/", dont_filter=True, meta={"is_start_request": True}) for _ in range(2)
    ]
    job.push([*requests(), *again, *start])
    job.close()
    work = importing(tmp_path / "job")
    _, store, done = brought(work)
    assert done == {"brought": 17, "known": 0}
    _, _, done = brought(work, store)
    assert done == {"brought": 0, "known": 17}
    # Nor when they have been done.
    assert len(handed_out(store, work.home)) == 17
    store.give_up(("w",))
    assert brought(work, store)[2] == {"brought": 0, "known": 17}
    assert store.snapshot().counts.waiting == 0


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job")
    job.push(requests(3, hosts=1))
    queue = job.queue.pqueues["host0.example"].queues[0]
    push = super(type(queue), queue).push  # past the serializer's own checks: the dict as it is
    push({"url": "https://a.example/gone", "callback": "parse_gone"})
    push({"url": "https://a.example/item", "meta": {"path": Path("x")}})
    push({"no": "request"})
    job.close({"ok": 1, "path": Path("x")})
    report = importing(tmp_path / "job").look("auto")
    assert (report.readable, report.unreadable) == (3, 3)
    [queue_report] = [each for each in report.queues if each.unreadable]
    reasons = "; ".join(queue_report.unreadable)
    assert "callback 'parse_gone' is not a callback of Books" in reasons
    assert "PosixPath, which is not plain data" in reasons
    assert "it is no request" in reasons
    assert "PosixPath" in report.left_out[0]


# Safety


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for data in (
        pickle.dumps(Evil(marker), 4),
        pickle.dumps({"url": "https://a.example", "meta": Evil(marker)}, 2),
        b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.",
        b"\x80\x04cbuiltins\ngetattr\n(cbuiltins\nset\nS'__class__'\ntR.",
        b"\x80\x04cbuiltins\nset\n(}tR}S'x'\nK\x01sb.",
        b"\x80\x04cbuiltins\neval\n(S'1'\ntR.",
        pickle.dumps(Books, 4),
    ):
        with pytest.raises(Unreadable):
            unpickle(data)
    assert not marker.exists()


def test_a_pickle_that_stands_for_too_much() -> None:
    bomb: list[Any] = []
    for _ in range(60):
        bomb = [bomb, bomb]
    deep: list[Any] = []
    deep.append(deep)
    for value in (bomb, deep):
        with pytest.raises(Unreadable, match=r"values|deep"):
            unpickle(pickle.dumps(value))
        with pytest.raises(Unreadable, match=r"values|deep"):
            unmarshal(marshal.dumps(bomb))
    # A number of a place in the memo that would take gigabytes, and a length beyond the end.
    for data in (b"\x80\x04Nr\xff\xff\xff\x7f.", b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00a."):
        with suppress(Unreadable):
            unpickle(data)


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
        | st.complex_numbers(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, inner) | st.sets(st.text()) | st.frozensets(st.integers()),
        max_leaves=20,
    ),
    st.integers(0, 4),
)  # fmt: skip
def test_marshalled_data_comes_back(value: object, version: int) -> None:
    assert unmarshal(marshal.dumps(value, version)) == value
    assert unpickle(pickle.dumps(value, max(3, version))) == value


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.randoms())
def test_any_bytes_are_read_or_refused(data: bytes, random: Random) -> None:
    whole = bytearray(marshal.dumps({"url": "x", "meta": {"a": [1, (2, 3.5)], "b": {4}}}))
    whole[random.randrange(len(whole))] ^= 1 << random.randrange(8)
    for read in (unmarshal, unpickle):
        for each in (data, bytes(whole), b"{" + data, b"\x80\x04" + data):
            with suppress(Unreadable):
                read(each)


# requests.seen


@pytest.mark.parametrize("form", ["lines", "bytes"])
def test_half_a_fingerprint_is_passed_over(form: str) -> None:
    given = [bytes([number]) * 20 for number in range(1, 30)]
    written = [each.hex().encode() + b"\n" if form == "lines" else b"\0\x14" + each for each in given]

    def read(data: bytes) -> tuple[list[bytes], int]:
        counts = SeenCounts()
        found = list(fingerprints(data, counts))
        assert counts.read == len(found)
        return found, counts.unreadable

    assert read(b"") == ([], 0)
    assert read(b"".join(written)) == (given, 0)
    # Torn at the end; and torn, then written on by a run that was resumed.
    assert read(b"".join(written)[:-7]) == (given[:-1], 1)
    torn = b"".join(written[:10])[:-7] + b"".join(written[10:])
    found, unreadable = read(torn)
    assert unreadable == 1
    assert [each for each in found if each in given] == [*given[:9], *given[10:]]
    # The short ones of scrapy-fleet stand among them.
    if form == "lines":
        assert read(b"".join(written) + b"ab" * 8 + b"\n")[0][-1] == b"\xab" * 8


# Crashed and damaged ones


@each_kind
def test_a_crashed_directory(kind: str, tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job", kind)
    given = requests(40)
    job.push(given)
    gone = [job.pop() for _ in range(5)]
    job.crash()
    before = {path: path.read_bytes() for path in (tmp_path / "job").rglob("*") if path.is_file()}
    work = importing(tmp_path / "job", kind)
    report, store, done = brought(work)
    assert report.crashed
    assert report.run_seeds
    assert report.unreadable == 0
    again = 5 if "FifoDisk" in kind else 0
    assert done["brought"] == 35 + again
    assert report.repeats == (40 if again else 0)
    urls = {request.url for request in handed_out(store, work.home)}
    assert urls >= {request.url for request in given} - {request.url for request in gone if request}
    assert {path: path.read_bytes() for path in (tmp_path / "job").rglob("*") if path.is_file()} == before


def test_pages_whose_links_wait_have_been_fetched(tmp_path: Path) -> None:
    """What was taken out of a FIFO queue that was not closed is unknown; but links tell whence they come."""
    job = StockJob(tmp_path / "job", "PickleFifoDiskQueue")

    def linked(start: int, page: int) -> list[Request]:
        headers = {"Referer": f"https://a.example/{page}"}
        return [Request(f"https://a.example/{start + n}", headers=headers) for n in range(100)]

    job.push(request for page in range(10) for request in linked(page * 100, page))
    job.push(
        [Request("https://a.example/1", dont_filter=True), Request("https://a.example/2", method="POST")]
    )
    for _ in range(10):
        job.pop()
    job.crash()
    work = importing(tmp_path / "job", "PickleFifoDiskQueue")
    report, store, done = brought(work)
    # Links of the last pages may not all have been there yet.
    assert (report.fetched, report.readable) == (6, 996)
    assert done == {"brought": 996, "known": 0}
    urls = [request.url for request in handed_out(store, work.home)]
    assert "https://a.example/5" not in urls
    assert "https://a.example/6" in urls
    assert urls.count("https://a.example/1") == urls.count("https://a.example/2") == 1
    assert brought(work, store)[2] == {"brought": 0, "known": 996}
    # Unless all is to be fetched again.
    assert importing(tmp_path / "job", "PickleFifoDiskQueue").look("auto", seen=False).readable == 1002


@each_kind
def test_a_kill_after_an_earlier_clean_stop(kind: str, tmp_path: Path) -> None:
    """What was written at the stop is still there, and wrong."""
    StockJob(tmp_path / "job", kind, by_slot=False).close()
    job = StockJob(tmp_path / "job", kind, by_slot=False)
    job.push(request.replace(priority=0) for request in requests(12))
    job.close({"n": 1})
    job = StockJob(tmp_path / "job", kind, by_slot=False)
    taken = [job.pop() for _ in range(4)]
    job.push(Request(f"https://new.example/{number}") for number in range(2))
    job.crash()
    work = importing(tmp_path / "job", kind)
    report, store, done = brought(work)
    again = 4 if "FifoDisk" in kind else 0
    assert done["brought"] == 10 + again
    if "SQLite" not in kind:  # these are as good after a kill
        assert report.crashed
        assert report.run_seeds
    urls = {request.url for request in handed_out(store, work.home)}
    assert "https://new.example/1" in urls
    assert len(urls & {request.url for request in taken if request}) == again


@pytest.mark.parametrize("kind", ["PickleLifoDiskQueue", "PickleFifoDiskQueue", "MarshalLifoDiskQueue"])
def test_a_torn_last_record(kind: str, tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job", kind)
    job.push(requests(9, hosts=1))
    job.crash()
    files = [p for p in (tmp_path / "job" / "requests.queue").rglob("*") if p.is_file()]
    for file in files:
        for cut in (1, 3, 5, 60):
            copy = tmp_path / f"copy{cut}{file.parent.name}{file.name}"
            shutil.copytree(tmp_path / "job", copy)
            torn = copy / file.relative_to(tmp_path / "job")
            torn.write_bytes(torn.read_bytes()[:-cut])
            report = importing(copy, kind).look("auto")
            assert (report.readable, report.unreadable) == (8, 0)
            assert sum(queue.found.lost for queue in report.queues) > 0


@pytest.mark.parametrize("kind", ["PickleLifoDiskQueue", "PickleFifoDiskQueue"])
def test_a_size_that_was_damaged_hides_only_its_record(kind: str, tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job", kind)
    job.push(request.replace(priority=0) for request in requests(20, hosts=1))
    job.crash()
    [file] = [p for p in (tmp_path / "job" / "requests.queue").rglob("*") if p.is_file()]
    data = bytearray(file.read_bytes())
    middle = data.index(b"\x80\x04", len(data) // 2)
    data[middle - 2] ^= 0x40  # the size of a record before it, or its own
    file.write_bytes(data)
    report = importing(tmp_path / "job", kind).look("auto")
    assert report.readable >= 18


@pytest.mark.skipif("PickleLifoSQLiteQueue" not in KINDS, reason="this Scrapy has no queues in SQLite")
def test_a_journal_that_was_left_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    job = StockJob(tmp_path / "job", "PickleLifoSQLiteQueue")
    job.push(request.replace(priority=0) for request in requests(6, hosts=1))
    job.crash()
    [file] = [p for p in (tmp_path / "job" / "requests.queue").rglob("*") if p.is_file()]
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA cache_spill = 1")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO queue (item) VALUES (?)", [(b"x" * 5000,)] * 50)
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    connection.rollback()
    connection.close()
    journal = next((tmp_path / "copy").rglob("*-journal"))
    assert journal.stat().st_size
    report = importing(tmp_path / "copy", "PickleLifoSQLiteQueue").look("auto")
    assert (report.readable, report.unreadable) == (6, 0)
    assert journal.stat().st_size


@pytest.fixture(scope="module")
def whole_jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("jobs")
    for kind in KINDS:
        for closed in (True, False):
            job = StockJob(folder / f"{kind}-{closed}", kind, by_slot=closed)
            job.push(requests(10))
            if closed:
                job.close({"n": 1})
            else:
                job.crash()
    return sorted(folder.iterdir())


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_whatever_happened_to_it_it_is_counted(
    whole_jobs: list[Path], tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "job"
    shutil.copytree(random.choice(whole_jobs), folder)
    for _ in range(random.randint(1, 3)):
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if files:
            damage(random.choice(files), random)
    try:
        work = importing(folder)
    except FleetError:
        return  # nothing is left that one could tell it by
    report, store, done = brought(work)
    assert done["brought"] + done["known"] == report.readable
    assert store.snapshot().counts.waiting == done["brought"]
    records = sum(queue.found.records for queue in report.queues)
    assert report.readable + report.unreadable + report.fetched == records
    said = io.StringIO()
    with redirect_stdout(said):
        show(work.job, report, "somewhere", store.snapshot(), seen=True)
    assert f"{report.readable} can be imported, {report.unreadable} cannot be read" in said.getvalue()


def damage(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    match random.choice(["cut", "flip", "flip", "empty", "remove", "remove folder", "insert", "garbage"]):
        case "cut":
            del data[random.randrange(len(data) + 1) :]
        case "flip" if data:
            for _ in range(random.randint(1, 20)):
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case "insert":
            at = random.randrange(len(data) + 1)
            data[at:at] = random.randbytes(random.randint(1, 100))
        case "empty":
            data.clear()
        case "garbage":
            data = bytearray(random.randbytes(random.randint(0, 2000)))
        case "remove":
            path.unlink()
            return
        case "remove folder":
            shutil.rmtree(path.parent)
            return
    path.write_bytes(data)


# The command

PROJECT = """
import scrapy

class Books(scrapy.Spider):
    name = "books"
    def parse_book(self, response): ...
    def failed(self, failure): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books_of_this_test.py").write_text(PROJECT)
    job = StockJob(tmp_path / "job")
    job.push(requests())
    job.close({"n": 1})
    return tmp_path


def command(*words: str) -> tuple[int, str]:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main([*words, "--spider", "books_of_this_test.py", "--url", "store"])
    return code, said.getvalue()


def test_it_says_first_what_it_would_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = command("import", "jobdir", "job")
    assert code == 2
    assert "12 requests in job are pickled" in said
    assert "--trust-pickle" in said
    monkeypatch.setattr("builtins.input", lambda question: "n")
    code, said = command("import", "jobdir", "job", "--trust-pickle")
    assert (code, "Nothing was changed" in said) == (2, True)
    assert "12 can be imported, 0 cannot be read, 12 of them pickled" in said
    assert not (folder / "store").exists()
    monkeypatch.setattr("builtins.input", lambda question: "y")
    code, said = command("import", "jobdir", "job", "--trust-pickle")
    assert (code, "Imported 12 requests into crawl 'books'." in said) == (0, True)
    code, said = command("import", "jobdir", "job", "--trust-pickle", "--yes")
    assert "Imported 0 requests into crawl 'books'; 12 were known to it." in said


def test_what_is_wrong_is_said_in_a_line(folder: Path) -> None:
    assert command("import", "jobdir", "nowhere") == (
        2, "scrapy-fleet: There is no folder nowhere. Name a job directory, as JOBDIR did.\n"
    )  # fmt: skip
    code, said = command("import", "jobdir", ".")
    assert (code, "is no job directory" in said) == (2, True)
    code, said = command("export", "jobdir", "books", "out")
    assert (code, "There is no crawl" in said) == (2, True)
    assert not (folder / "out").exists()


def test_export_writes_what_stock_scrapy_reads(folder: Path) -> None:
    command("import", "jobdir", "job", "--trust-pickle", "--yes")
    by_slot = "SCHEDULER_PRIORITY_QUEUE=scrapy.pqueues.DownloaderAwarePriorityQueue"
    code, said = command("export", "jobdir", "books", "out", "-s", by_slot)
    assert code == 0, said
    assert "12 requests waiting" in said
    theirs, ours = StockJob(folder / "job"), StockJob(folder / "out")
    assert ours.pop_all() == theirs.pop_all()
    assert pickle.loads((folder / "out" / "spider.state").read_bytes()) == {"n": 1}
    code, said = command("export", "jobdir", "books", "out")
    assert (code, "not empty" in said) == (2, True)
