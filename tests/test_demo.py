"""The demo: it must end well by itself, and must notice when something is lost."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from scrapy_fleet.ops.demo import Demo
from scrapy_fleet.ops.demo_view import Silent
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.store.sqlite import SqliteStore
from tests.commands import FLEET, data, environment, run

pytestmark = pytest.mark.slow


def test_demo(tmp_path: Path) -> None:
    verdict = data("demo", "--pages", "300", "--keep", "kept", cwd=tmp_path)
    assert verdict["ok"]
    assert (verdict["pages"], verdict["reached"], verdict["lost"]) == (300, 300, 0)
    assert (verdict["items"], verdict["items_lost"], verdict["items_repeated"]) == (300, 0, 0)
    assert verdict["killed"]["pages"] >= 150
    assert verdict["repeated"] <= verdict["repeated_at_most"] == verdict["killed"]["held"] > 0
    assert sorted(verdict["workers"].values()) == ["finished", "finished", "killed"]
    assert verdict["redirects"] > 0
    assert verdict["not_found"] > 0
    assert verdict["server_errors"] > 0
    assert verdict["pages_per_second"] > 0
    # What is kept can be looked at.
    [found] = data("status", "--url", "kept", cwd=tmp_path)["crawls"]
    assert (found["crawl"], found["status"]) == ("demo", "finished")
    again = run(FLEET, "demo", "--keep", "kept", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == "scrapy-fleet: The folder kept is not empty. Name a new one for --keep.\n"


def test_demo_in_plain_lines(tmp_path: Path) -> None:
    done = run(FLEET, "demo", "--pages", "200", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "* Worker 1 killed (SIGKILL)" in done.stdout
    assert "200 of 200 pages" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.endswith("Nothing was lost.\n")
    assert not any(tmp_path.iterdir())


def test_demo_on_a_terminal(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*FLEET, "demo", "--pages", "200"],
        cwd=tmp_path,
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as showing:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # Linux's way to say that the other end is closed
            pass
    os.close(ours)
    assert showing.returncode == 0
    text = shown.decode()
    assert "━━━" in text
    assert "by SIGKILL" in text
    assert "Nothing was lost." in text


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with subprocess.Popen(
        [*FLEET, "demo", "--keep", str(kept)],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as showing:
        assert showing.stdout is not None
        assert showing.stderr is not None
        while "1 worker" not in (line := showing.stdout.readline()) and "2 workers\n" not in line:
            assert line
        showing.send_signal(signal.SIGINT)
        assert showing.stderr.read() == ""
    assert showing.returncode == 130
    cwds = [_cwd(process) for process in Path("/proc").glob("[0-9]*")]
    assert str(kept) not in cwds


def _cwd(process: Path) -> str | None:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return None


def test_the_verdict_sees_what_is_lost(tmp_path: Path) -> None:
    with running(Shape(pages=20)) as site:
        store = SqliteStore(tmp_path / "demo.db", "demo")
        verdict = Demo(tmp_path, site, store, 0, Silent()).verdict()
    assert not verdict["ok"]
    assert (verdict["lost"], verdict["items_lost"], verdict["killed"]) == (20, 20, None)
    assert json.loads(json.dumps(verdict)) == verdict
