"""Starts ``python -m ...`` in a moment: forked from a process that has Scrapy loaded already.

To load Scrapy takes most of the time of a test that runs one command. Here a process does it once, and what a
test starts is a fork of it, with arguments, folder, environment and files of its own, which ends as any
Python does. Commands, ``scrapy_fleet.ops``, are loaded anew by each. Where it matters how a process comes
to be, as when other packages are put before those installed, tests start one by ``subprocess`` instead.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_number = struct.Struct("=q")

# For whoever starts processes


class Forked:
    """As much of ``subprocess.Popen`` as tests use."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        cwd: Path,
        env: dict[str, str],
        stdout: int,
        stderr: int,
        stdin: int | None = None,
    ) -> None:
        asked = {"module": module, "arguments": arguments, "cwd": str(cwd), "env": env}
        self.returncode: int | None = None
        self._end, end = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            _ask(asked, [nothing.fileno() if stdin is None else stdin, stdout, stderr, end])
        os.close(end)
        self.pid = self._hear()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = self._hear()
            os.close(self._end)
        return self.returncode

    def _hear(self) -> int:
        told = os.read(self._end, _number.size)
        assert told, "the process that forks others is gone"
        number: int = _number.unpack(told)[0]
        return number

    def poll(self) -> int | None:
        if self.returncode is None and not select.select([self._end], [], [], 0)[0]:
            return None
        return self.wait()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    module: str, *arguments: str, cwd: Path, env: dict[str, str], given: bytes = b"", timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` does, with what it is given to read, and what it prints."""
    with (
        tempfile.TemporaryFile() as into,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        into.write(given)
        into.seek(0)
        files = {"stdin": into.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        process = Forked(module, *arguments, cwd=cwd, env=env, **files)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess([module, *arguments], code, out.read(), err.read())


_way: tuple[int, socket.socket] | None = None
"""To the process that forks, and whose it is."""


def _ask(asked: dict[str, Any], files: list[int]) -> None:
    global _way
    if _way is None or _way[0] != os.getpid():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            # Sets in the same order in every run, and in all that a test compares.
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        _way = os.getpid(), ours
    socket.send_fds(_way[1], [json.dumps(asked).encode()], files)


# The process that forks


def serve(way: socket.socket) -> dict[str, Any]:
    """Fork what is asked for, and tell of each how it ended. Returns in the forks alone, with what to do."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ends: dict[int, int] = {}
    while True:
        ready = select.select([way, wake], [], [])[0]
        if wake in ready:
            os.read(wake, 1000)
            _tell_of_the_ended(ends)
        if way in ready:
            asked, files, _, _ = socket.recv_fds(way, 1 << 20, 4)
            if not asked:
                os._exit(0)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                way.close()
                for number, file in enumerate(files[:3]):
                    os.dup2(file, number)
                for file in (*files, *ends.values(), wake, woken):
                    os.close(file)
                job: dict[str, Any] = json.loads(asked)
                return job
            for file in files[:3]:
                os.close(file)
            ends[pid] = files[3]
            os.write(files[3], _number.pack(pid))


def _tell_of_the_ended(ends: dict[int, int]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = ends.pop(pid)
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(end, _number.pack(os.waitstatus_to_exitcode(status)))
        os.close(end)


def be(job: dict[str, Any]) -> int:
    """Do what ``python -m`` does; its exit code."""
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    os.chdir(job["cwd"])
    sys.path[0] = job["cwd"]
    sys.argv = [job["module"], *job["arguments"]]
    try:
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return 1
    return 0


def end(code: int) -> None:
    """As Python ends, but for taking apart all that is loaded: that takes longer than many a command."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    import tests.crash.worker  # noqa: F401  # all that a crawl needs

    gc.freeze()
    end(be(serve(socket.socket(fileno=int(sys.argv[1])))))
