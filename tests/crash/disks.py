"""A disk whose power can be cut: a file system of its own, in a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE = 48 << 20


class Disk:
    """What is written there and not flushed is in the memory of the system, and not on the disk.

    A power cut is the disk as it is at that moment, without what the system had in memory. The disk itself
    keeps all that was sent to it, in the order in which it was sent: a disk that lies about flushing, or that
    tears what it writes, is not what this shows.
    """

    def __init__(self, folder: Path) -> None:
        # Paths of sockets must be short: not pytest's folders.
        self.folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self._images = folder
        self._cuts = 0
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        _root("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    @property
    def _image(self) -> Path:
        return self._images / f"disk-{self._cuts}"

    def sync(self) -> None:
        """Flush everything: what is there now survives."""
        _root("sync", "-f", str(self.folder))

    def cut_power(self, end_processes: Callable[[], object]) -> None:
        """Whoever writes to the disk must stand still, and be ended by the call that is given."""
        left = self._as_it_is()
        end_processes()
        self._unmount()
        self._image.unlink()
        self._cuts += 1
        self._image.write_bytes(left)
        self._mount()

    def _as_it_is(self) -> bytes:
        """The disk at one moment: the system may write to it while it is read, so it is read until it is
        twice the same."""
        before = self._image.read_bytes()
        while (after := self._image.read_bytes()) != before:
            before = after
        return after

    def close(self) -> None:
        self._unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mount(self) -> None:
        _root("mount", "-o", "loop", str(self._image), str(self.folder))

    def _unmount(self) -> None:
        # Lazily: a process that was just killed may not have let go of it yet.
        _root("umount", "--lazy", str(self.folder))


def _root(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def a_disk(folder: Path) -> Iterator[Disk]:
    if not sys.platform.startswith("linux") or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs Linux and mkfs.ext4")
    try:
        disk = Disk(folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs the right to mount a file system: {error.stderr}")
    try:
        yield disk
    finally:
        disk.close()
