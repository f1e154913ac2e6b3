"""The part of ``doctor`` that looks at SQLite files and the folders they are in."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from scrapy_fleet.model import Worker
from scrapy_fleet.ops.doctor import Check
from scrapy_fleet.ops.show import count, duration, number, size
from scrapy_fleet.process import gone
from scrapy_fleet.store.sqlite.database import APPLICATION_ID, VERSION

# SQLite's write-ahead log needs memory that all processes share, which these do not give
# between machines, and some of them not at all.
NETWORK = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3"),
    *("smbfs", "vboxsf", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
    "fuse.sshfs",
}
LITTLE_SPACE, NO_SPACE = 1_000_000_000, 50_000_000
LARGE_LOG = 256_000_000
OTHER_FILE = "Name another file in FLEET_URL."
RECOVER = "Stop the workers, keep a copy, then: sqlite3 {path} .recover | sqlite3 new.db"


# The folder


def examine_folder(folder: Path, files: list[Path]) -> Iterator[Check]:
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        yield Check(
            "place", "fail", f"{there} is not a folder.", "Name another place in FLEET_URL or JOBDIR."
        )
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield Check(
            "place",
            "fail",
            f"{there} cannot be written to; SQLite needs that even to read a crawl.",
            "Give yourself the right to write there, or name another place in FLEET_URL or JOBDIR.",
        )
        return
    if not folder.exists():
        yield Check("place", "ok", f"{folder} will be made when a crawl begins")
    elif not files:
        yield Check("place", "ok", f"{folder} can be written to; there is no crawl yet")
    else:
        yield Check("place", "ok", f"{folder} can be written to")
    yield _file_system(there)
    yield _space(there)
    yield from _lost_logs(folder)


def mount_of(folder: Path, mounts: str) -> str:
    """The type of the file system a folder is on; ``mounts`` is what /proc/mounts says."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), found
    return kind


def _file_system(folder: Path) -> Check:
    try:
        kind = mount_of(folder.resolve(), Path("/proc/mounts").read_text(encoding="utf-8", errors="replace"))
    except OSError:  # not on Linux
        kind = ""
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".fleet-doctor-", dir=folder) as scratch,
            closing(sqlite3.connect(Path(scratch, "try.db"))) as db,
        ):
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            db.execute("CREATE TABLE try (one)")
    except (sqlite3.Error, OSError) as error:
        return Check(
            "file system",
            "fail",
            f"SQLite cannot write a database in {folder}: {error}.",
            "Free some space or name a local disk in FLEET_URL or JOBDIR.",
        )
    local = "Keep crawls on a local disk: name one in FLEET_URL or JOBDIR."
    if mode != "wal":
        return Check("file system", "fail", f"SQLite's WAL mode does not work in {folder} ({kind}).", local)
    if kind in NETWORK:
        return Check(
            "file system",
            "warn",
            f"{folder} is on a network file system ({kind}): workers on two machines would damage the crawl.",
            local,
        )
    return Check("file system", "ok", f"WAL works{f' ({kind})' if kind else ''}")


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    message = f"{size(free)} free in {folder}"
    remedy = "Free some space; a crawl waits while the disk is full, and goes on then."
    if free < NO_SPACE:
        return Check("disk", "fail", f"Only {message}.", remedy)
    if free < LITTLE_SPACE:
        return Check("disk", "warn", f"Only {message}.", remedy)
    return Check("disk", "ok", message)


# A file


def examine_file(path: Path, *, named: bool) -> Iterator[Check]:
    """Check one file. One that was not named, and is another program's, is passed over."""
    log = log_of(path)
    length = log.stat().st_size if log.exists() else 0
    try:
        with closing(sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True, timeout=5)) as db:
            db.row_factory = sqlite3.Row
            if _value(db, "PRAGMA application_id") != APPLICATION_ID:
                if named:
                    empty = not _value(db, "SELECT count(*) FROM sqlite_master")
                    what = "empty" if empty else "a database of another program"
                    yield Check("file", "fail", f"{path} is {what}.", OTHER_FILE)
                return
            version = _value(db, "PRAGMA user_version")
            if version > VERSION:
                newer = f"a newer scrapy-fleet (format {version}, this one knows {VERSION})"
                remedy = "pip install --upgrade scrapy-fleet"
                yield Check("file", "fail", f"{path} was written by {newer}.", remedy)
                return
            yield Check("file", "ok", f"{path}, {size(path.stat().st_size)}, format {version}")
            faults = [row[0] for row in db.execute("PRAGMA quick_check(5)")]
            if faults != ["ok"]:
                yield Check("integrity", "fail", f"{path} is damaged: {faults[0]}", RECOVER.format(path=path))
                return
            yield Check("integrity", "ok", "the file is whole")
            db.execute("BEGIN")
            yield _counters(db)
            yield from _workers(db)
            yield _dead(db)
    except sqlite3.DatabaseError as error:
        yield _unreadable(path, error)
        return
    yield _log(log, length)


def _unreadable(path: Path, error: sqlite3.DatabaseError) -> Check:
    code = getattr(error, "sqlite_errorname", None) or ""
    if code.startswith("SQLITE_NOTADB"):
        return Check("file", "fail", f"{path} is not a database.", OTHER_FILE)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Check(
            "file", "warn", f"Another process keeps {path} locked.", f"Try again; see who: lsof {path}"
        )
    if code.startswith("SQLITE_CORRUPT") or "malformed" in str(error):
        return Check("integrity", "fail", f"{path} is damaged: {error}", RECOVER.format(path=path))
    remedy = "Check the rights of the file, of those beside it (-wal, -shm), and of its folder."
    return Check("file", "fail", f"{path} cannot be read: {error} ({code}).", remedy)


def _value(db: sqlite3.Connection, sql: str) -> float:
    value: float = db.execute(sql).fetchone()[0]
    return value


COUNTED = """
SELECT
    (SELECT count(*) FROM entry WHERE state IN (0, 3)) AS waiting,
    (SELECT count(*) FROM entry WHERE state = 1) AS leased,
    (SELECT count(*) FROM entry WHERE state = 2) AS dead,
    (SELECT count(*) FROM entry WHERE state = 3) AS suspects,
    (SELECT count(*) FROM seen) AS seen
"""
PER_HOST = """
SELECT s.name FROM slot s
LEFT JOIN (SELECT slot, sum(state = 0) AS queued, sum(state = 1) AS leased, sum(state = 3) AS suspects,
                  sum(state = 1 AND busy) AS active FROM entry GROUP BY slot) e ON e.slot = s.id
WHERE s.queued != coalesce(e.queued, 0) OR s.leased != coalesce(e.leased, 0)
   OR s.suspects != coalesce(e.suspects, 0) OR s.active != coalesce(e.active, 0)
"""
ORPHANS = """
SELECT count(*) FROM entry WHERE slot NOT IN (SELECT id FROM slot)
   OR state = 1 AND worker NOT IN (SELECT num FROM worker)
"""


def _counters(db: sqlite3.Connection) -> Check:
    """Count the tables and compare with the counters that every commit keeps."""
    crawl = db.execute("SELECT * FROM crawl").fetchone()
    counted = db.execute(COUNTED).fetchone()
    wrong = [
        f"{name} is {number(crawl[name])} but {number(counted[name])} are there"
        for name in counted.keys()  # noqa: SIM118 (a Row iterates over its values)
        if crawl[name] != counted[name]
    ]
    total = crawl["waiting"] + crawl["leased"] + crawl["done"] + crawl["dead"]
    if crawl["accepted"] != total:
        wrong.append(f"accepted is {number(crawl['accepted'])} but the others add up to {number(total)}")
    hosts = [row[0] for row in db.execute(PER_HOST)]
    if hosts:
        wrong.append(f"the counters of {count(len(hosts), 'host')} differ, such as {hosts[0]}")
    if orphans := int(_value(db, ORPHANS)):
        wrong.append(f"{count(orphans, 'request')} belong to no host or no worker")
    if wrong:
        return Check(
            "counters",
            "fail",
            f"They do not add up: {'; '.join(wrong)}.",
            "Something else wrote to the file, or this is a bug: keep a copy of the file and report it. "
            "The requests are all there; start the crawl in another place to be sure of its end.",
        )
    parts = " + ".join(f"{number(crawl[name])} {name}" for name in ("waiting", "leased", "done", "dead"))
    return Check("counters", "ok", f"{number(crawl['accepted'])} accepted = {parts}, as counted anew")


def _workers(db: sqlite3.Connection) -> Iterator[Check]:
    now = max(time.monotonic() + _value_of(db, "offset"), _value_of(db, "clock"))
    rows = db.execute(
        "SELECT w.*, (SELECT count(*) FROM entry WHERE state = 1 AND worker = w.num) AS held FROM worker w"
    ).fetchall()
    silent = 0
    for row in rows:
        held = f"it holds {count(row['held'], 'request')}"
        worker = Worker(row["id"], row["host"], row["pid"], row["home"], row["birth"])
        if gone(worker):
            why = f"{worker.id}: its process has ended without a word; {held}."
        elif row["deadline"] < now:
            why = f"{worker.id}: silent for {duration(now - row['deadline'] + row['ttl'])}; {held}."
        else:
            continue
        silent += 1
        yield Check(
            "workers",
            "warn",
            why,
            "Nothing is lost: start the crawl again, or let its other workers take over.",
        )
    if not silent:
        yield Check(
            "workers", "ok", f"{count(len(rows), 'worker')}, all heard of" if rows else "none at work"
        )


def _value_of(db: sqlite3.Connection, column: str) -> float:
    return float(_value(db, f"SELECT {column} FROM crawl"))


def _dead(db: sqlite3.Connection) -> Check:
    name, dead = db.execute("SELECT name, dead FROM crawl").fetchone()
    if not dead:
        return Check("dead", "ok", "none")
    return Check(
        "dead",
        "warn",
        f"{count(dead, 'request')} of crawl {name!r} {'was' if dead == 1 else 'were'} given up.",
        f"See why: scrapy-fleet dead {name}; try again: scrapy-fleet dead {name} requeue --all",
    )


def log_of(path: Path) -> Path:
    """SQLite's write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def _log(log: Path, length: int) -> Check:
    """The log is left behind by a crash, which is normal; a huge one is not."""
    if length > LARGE_LOG:
        return Check(
            "log",
            "warn",
            f"{log} has grown to {size(length)}: something has kept the database open for reading.",
            "End programs that have it open for long; the next commit then folds the log in.",
        )
    if length:
        return Check("log", "ok", f"{size(length)}; whoever copies the file must copy {log.name} too")
    return Check("log", "ok", "empty: the file alone is the whole crawl")


def _lost_logs(folder: Path) -> Iterator[Check]:
    for log in sorted(folder.glob("*.db-wal")):
        path = log.with_name(log.name.removesuffix("-wal"))
        if not path.exists() and log.stat().st_size:
            yield Check(
                "log",
                "fail",
                f"{log} is there, but {path.name}, which it belongs to, is not.",
                f"Bring {path.name} back beside it; without the log its last commits are missing. "
                f"If the crawl was deleted, delete {log.name} too: it would damage a new one.",
                str(log),
            )
