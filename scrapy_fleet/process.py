"""Telling whether the process of a worker is still there, without waiting for its silence."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

from scrapy_fleet.model import Worker


def _home() -> str:
    """Names the machine's run and the pid namespace, in which a pid means something. Empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _birth(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty if there is none, or it is a zombie."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def new_name(host: str, pid: int) -> str:
    return f"{host}-{pid}-{uuid.uuid4().hex[:8]}"


def this_worker() -> Worker:
    """A new worker of this process. Several crawlers in one process are several workers."""
    host, pid = socket.gethostname(), os.getpid()
    return Worker(new_name(host, pid), host, pid, _home(), _birth(pid))


def gone(worker: Worker) -> bool:
    """Whether it is certain that the worker's process has ended."""
    home = _home()
    return bool(home and worker.home == home and worker.birth and _birth(worker.pid) != worker.birth)
