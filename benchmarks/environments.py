"""What is measured beside us, each in an environment of its own, which is made when it is missing.

Imports nothing that such an environment may lack: what runs in one of them may import this.
"""

from __future__ import annotations

import os
import subprocess
import venv
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import ROOT


class NoPeer(Exception):
    """It cannot be installed; why."""


class Peer(NamedTuple):
    """What is measured beside us."""

    name: str
    """Of the package, as people call it."""
    folder: str
    """Of its environment, beside the project."""
    needs: str
    """What can be imported when all of it is there."""
    packages: tuple[str, ...]
    """What pip is told to install."""
    as_here: tuple[str, ...] = ()
    """Packages that it gets in the version that we have."""

    @property
    def python(self) -> Path:
        return ROOT / self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def is_there(self) -> bool:
        if not self.python.exists():
            return False
        command = [str(self.python), "-c", f"import {self.needs}"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


SCRAPY_REDIS = Peer("scrapy-redis", ".venv-bench", "scrapy_redis", ("scrapy-redis",), ("scrapy", "redis"))
CRAWLEE = Peer("crawlee", ".venv-bench-crawlee", "crawlee, aiosqlite, sqlalchemy", ("crawlee[sql-sqlite]",))


def python_of(peer: Peer) -> str:
    """The Python that has it."""
    if peer.is_there():
        return str(peer.python)
    print(f"making {peer.folder} for {peer.name}", flush=True)
    try:
        venv.create(ROOT / peer.folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoPeer(f"no environment can be made ({error})") from error
    wanted = [*peer.packages, *(f"{name}=={version(name)}" for name in peer.as_here)]
    command = [str(peer.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise NoPeer(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed")
    if not peer.is_there():
        raise NoPeer(f"it is installed, but has no {peer.needs}")
    return str(peer.python)


def version_of(peer: Peer) -> str:
    code = f"from importlib.metadata import version; print(version({peer.name!r}))"
    done = subprocess.run([peer.python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()
