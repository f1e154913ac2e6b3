"""The machine is started anew: another boot, and a clock that begins again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_fleet.crawl.plain import unpack
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.store.sqlite import SqliteStore
from tests.command_line import Run
from tests.crash.rounds import arrivals_of_a_clean_crawl

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=150, links=5, seed=4, redirects=0.1, failing=0.1, slow=0.3, delay=(0.05, 0.2))
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def machine(folder: Path, *, up_for: int) -> tuple[str, ...]:
    """Runs a command as if the machine had another boot id, and had been up for so much longer."""
    boot = folder / f"boot-{up_for}"
    boot.write_text(f"{up_for}\n")
    inside = (
        *("unshare", "--mount", "--time", "--monotonic", str(up_for), "--fork", "--kill-child"),
        *("sh", "-c", f'mount --bind "{boot}" {BOOT_ID} && exec "$0" "$@"'),
    )
    clock = (sys.executable, "-c", f"import time; print(open('{BOOT_ID}').read(), time.monotonic())")
    try:
        shown = subprocess.run([*inside, *clock], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs unshare, which is Linux's")
    if shown.returncode:
        pytest.skip(f"needs the right to change the clock of a process: {shown.stderr}")
    assert int(shown.stdout.split()[0]) == up_for < float(shown.stdout.split()[1])
    return inside


@pytest.mark.parametrize(("before", "after"), [(1_000_000, 0), (0, 1_000_000)])
def test_a_crawl_goes_on_after_a_reboot(before: int, after: int, tmp_path: Path) -> None:
    """The machine had been up for longer before, or it has been since."""
    settings = {"FLEET_URL": f"sqlite:{tmp_path / 'site.db'}", "FLEET_WORKER_TIMEOUT": 2}
    first, second = machine(tmp_path, up_for=before + 1), machine(tmp_path, up_for=after + 2)
    with running(SHAPE) as site:
        with Run(site, tmp_path, {**settings, "DOWNLOAD_DELAY": 0.01}, inside=first):
            site.wait(pages=40)
        store = SqliteStore(tmp_path / "site.db", "site", create=False)
        assert store.snapshot().counts.leased > 0
        with Run(site, tmp_path, settings, inside=second) as again:
            log = again.ended()
        assert "Resuming crawl" in log
        assert "'finish_reason': 'finished'" in log
        # Of a process of another boot nobody can tell whether it has ended: it is given up by its silence.
        assert "had died here" not in log
        assert "requests came back from workers that died" in log
        assert not site.lost()
        assert not arrivals_of_a_clean_crawl(site.site) - site.arrivals()
        pages = [unpack(item) for _, item in store.items(limit=1000)]
        assert sorted(int(item["page"]) for item in pages) == list(range(SHAPE.pages))  # type: ignore[index,call-overload]
        store.close()
