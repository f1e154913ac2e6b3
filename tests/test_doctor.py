"""The doctor, on crawls that are well and on all that can be wrong with them."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scrapy_fleet.ops.doctor import Check
from scrapy_fleet.ops.doctor_store import examine_file, examine_folder, mount_of
from tests.commands import FLEET, Crawl, crawl, data, entry, environment, project, run


def troubles(path: Path) -> list[Check]:
    """What is found wrong with a file."""
    checks = list(examine_file(path, named=True))
    assert all(check.remedy for check in checks if check.level != "ok")
    return [check for check in checks if check.level != "ok"]


def alter(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()


def test_all_is_well(tmp_path: Path) -> None:
    made = Crawl(tmp_path / ".scrapy" / "fleet" / "x.db", "x")
    made.add(entry("http://a.example/"))
    found = data("doctor", cwd=tmp_path)
    assert found["ok"]
    assert {check["name"]: check["level"] for check in found["checks"]} == dict.fromkeys(
        [
            *("python", "scrapy", "inside", "sqlite", "place", "file system", "disk"),
            *("file", "integrity", "counters", "workers", "dead", "log"),
        ],
        "ok",
    )
    assert set(found["checks"][0]) == {"name", "level", "message", "remedy", "file"}
    assert not any((tmp_path / ".scrapy" / "fleet").glob(".fleet-doctor-*"))


def test_nothing_there_yet(tmp_path: Path) -> None:
    done = run(FLEET, "doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert ".scrapy/fleet will be made when a crawl begins" in done.stdout
    assert "all is well" in done.stdout
    assert not (tmp_path / ".scrapy").exists()


def test_what_is_wrong_comes_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database " * 100)
    done = run(FLEET, "doctor", "--url", "text.db", cwd=tmp_path)
    assert done.returncode == 1
    assert "fail  file: text.db is not a database." in done.stdout
    assert "mend it: Name another file in FLEET_URL." in done.stdout
    assert done.stdout.endswith("1 failure.\n")
    assert done.stderr == ""


def test_a_crawl_that_is_not_there(tmp_path: Path) -> None:
    found = data("doctor", "news", cwd=tmp_path, code=1)
    [failed] = [check for check in found["checks"] if check["level"] == "fail"]
    assert failed["message"].startswith("There is no crawl 'news' in .scrapy/fleet.")


def test_every_crawl_of_a_folder_is_examined_and_other_databases_are_not(tmp_path: Path) -> None:
    crawl(tmp_path / "one.db", "one")
    crawl(tmp_path / "two.db", "two")
    alter(tmp_path / "foreign.db", "CREATE TABLE theirs (a)")
    checks = data("doctor", "--url", ".", cwd=tmp_path)["checks"]
    assert [c["file"] for c in checks if c["name"] == "counters"] == ["one.db", "two.db"]
    assert not any("foreign" in c["message"] for c in checks)


# The project


def test_a_misspelt_setting(tmp_path: Path) -> None:
    here = project(tmp_path, "ADDONS = {'scrapy_fleet.Addon': 500}\nFLEET_WORKER_TIMEOT = 5")
    found = data("doctor", cwd=here, code=1)
    [failed] = [check for check in found["checks"] if check["level"] == "fail"]
    assert failed["name"] == "settings"
    assert "Did you mean FLEET_WORKER_TIMEOUT?" in failed["message"]


def test_a_project_without_the_add_on_that_may_lose_power(tmp_path: Path) -> None:
    here = project(tmp_path, "FLEET_DURABILITY = 'normal'")
    found = data("doctor", cwd=here)
    assert [c["name"] for c in found["checks"] if c["level"] == "warn"] == ["add-on", "durability"]


def test_a_scrapy_that_changed_inside(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import scrapy.core.scraper as scraper\n"
        "class Slot(scraper.Slot):\n"
        "    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n"
        "        self.queue = None\n"
        "scraper.Slot = Slot\n"
    )
    found = data("doctor", cwd=tmp_path, code=1, paths=(tmp_path,))
    [failed] = [check for check in found["checks"] if check["level"] == "fail"]
    assert failed["name"] == "inside"
    assert "has no engine.scraper.slot.queue" in failed["message"]


# The file


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    alter(path, "CREATE TABLE theirs (a)")
    [trouble] = troubles(path)
    assert (trouble.level, "another program" in trouble.message) == ("fail", True)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    assert [(t.name, t.level) for t in troubles(path)] == [("file", "fail")]


def test_a_newer_format(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    crawl(path, "x").store.close()
    alter(path, "PRAGMA user_version = 99")
    [trouble] = troubles(path)
    assert (trouble.level, "format 99" in trouble.message) == ("fail", True)


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    made = Crawl(path, "x")
    made.add(*(entry(f"http://a.example/{n}") for n in range(2000)))
    made.store.close()
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        for page in range(pages // 2, pages):
            file.seek(page * 4096)
            file.write(b"\xff" * 512)
    [trouble] = troubles(path)
    assert (trouble.name, trouble.level) == ("integrity", "fail")
    assert trouble.remedy is not None
    assert ".recover" in trouble.remedy


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE crawl SET waiting = waiting + 1", "waiting is 3 but 2 are there"),
        ("UPDATE crawl SET done = done + 1", "accepted is 6 but the others add up to 7"),
        ("DELETE FROM seen", "seen is 6 but 0 are there"),
        ("UPDATE slot SET queued = 7 WHERE name = 'b.example'", "the counters of 1 host differ"),
        ("DELETE FROM worker", "1 request belong to no host or no worker"),
    ],
)
def test_counters_that_do_not_add_up(sql: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    crawl(path, "x").store.close()
    alter(path, sql)
    [trouble] = [t for t in troubles(path) if t.name == "counters"]
    assert trouble.level == "fail"
    assert message in trouble.message


def test_dead_requests_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    crawl(path, "x")
    [trouble] = troubles(path)
    assert (trouble.name, trouble.level) == ("dead", "warn")
    assert trouble.message == "2 requests of crawl 'x' were given up."


def test_a_silent_worker(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    made = Crawl(path, "x", clock=lambda: time.monotonic() - 1000)
    made.add(entry("http://a.example/"))
    made.lease(1)
    [trouble] = troubles(path)
    assert (trouble.name, trouble.level) == ("workers", "warn")
    assert "w-1: silent for" in trouble.message
    assert "it holds 1 request." in trouble.message


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells processes apart by /proc")
def test_a_worker_whose_process_has_ended(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom scrapy_fleet.process import this_worker\n"
        "from tests.commands import Crawl\n"
        "Crawl(Path(sys.argv[1]), 'x', worker=this_worker())\nos._exit(9)"
    )
    path = tmp_path / "x.db"
    subprocess.run([sys.executable, "-c", code, str(path)], env=environment(), check=False, timeout=60)
    [trouble] = troubles(path)
    assert "its process has ended without a word" in trouble.message


def test_a_log_without_its_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    crawl(path, "x")  # stays open: its log is not folded in
    path.rename(tmp_path / "elsewhere")
    [trouble] = [check for check in examine_folder(tmp_path, []) if check.level != "ok"]
    assert (trouble.name, trouble.level) == ("log", "fail")
    assert "x.db-wal" in trouble.message


# The folder


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    [trouble] = examine_folder(tmp_path / "crawls", [])
    tmp_path.chmod(0o700)
    assert (trouble.name, trouble.level) == ("place", "fail")


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "crawls").touch()
    [trouble] = examine_folder(tmp_path / "crawls", [])
    assert (trouble.name, trouble.level) == ("place", "fail")


def test_the_file_system_is_found() -> None:
    mounts = (
        "/dev/sda1 / ext4 rw 0 0\nserver:/data /data nfs4 rw 0 0\n"
        "tmpfs /data/local tmpfs rw 0 0\n//nas/s /mnt/my\\040share cifs rw 0 0\n"
    )
    assert mount_of(Path("/home/me"), mounts) == "ext4"
    assert mount_of(Path("/data/crawls"), mounts) == "nfs4"
    assert mount_of(Path("/data/local/x"), mounts) == "tmpfs"
    assert mount_of(Path("/database"), mounts) == "ext4"
    assert mount_of(Path("/mnt/my share/x"), mounts) == "cifs"
