"""No space left: the crawl pauses, says so, and goes on when there is space again."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import running
from tests.crash.fleet import Fleet
from tests.crash.rounds import a_shape, arrivals_of_a_clean_crawl
from tests.crash.spiders import SiteSpider

pytestmark = pytest.mark.crash


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the space there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


@pytest.mark.parametrize("then", ["goes on", "is killed"])
def test_a_full_disk_pauses_the_crawl(then: str, small_disk: Path, tmp_path: Path) -> None:
    shape = a_shape("tree", seed=8, pages=200)
    url = f"sqlite://{small_disk}/crawl.db"
    with running(shape) as site, Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url) as fleet:
        workers = [fleet.start(), fleet.start()]
        site.wait(pages=30)
        filler = fill(small_disk)
        for worker in workers:
            worker.logged("is full")
        held: Counter[str] = Counter()
        if then == "is killed":
            for worker in workers:
                worker.kill()
        filler.unlink()
        if then == "is killed":
            held = fleet.held_by(*workers)
            fleet.start()
        fleet.finish()
        if then == "goes on":
            for worker in workers:
                worker.logged("The store is back")
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(shape.pages))
        assert fleet.snapshot().counts.dead == 0
