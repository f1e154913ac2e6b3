"""The arguments of the commands that carry crawls from place to place: ``import``, ``export``, ``snapshot``,
``restore``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_fleet.ops.importing import add_import, run_import

if TYPE_CHECKING:
    from scrapy_fleet.ops.place import Place

TRANSFER_COMMANDS = ("import", "export", "snapshot", "restore")
NEED_PROJECT = ("import", "export")
"""Commands that need the project's spiders, wherever the crawl is."""


def add_transfer_commands(commands: Any, where: argparse.ArgumentParser, prog: str) -> None:
    add_import(commands, where, prog)
    export = commands.add_parser(
        "export", help="write a crawl as others keep it: jobdir",
        description="Writes what is left of a crawl in the form of another tool.",
    )  # fmt: skip
    forms = export.add_subparsers(dest="form", metavar="FORM", required=True, prog=f"{prog} export")
    jobdir = forms.add_parser(
        "jobdir", parents=[where], help="a job directory, with which stock Scrapy goes on",
        description="Writes a job directory with which Scrapy's own scheduler goes on: waiting requests, "
        "what was seen, spider.state. The crawl is not changed. The queues are those that the settings name.",
    )  # fmt: skip
    jobdir.add_argument("crawl", metavar="CRAWL", help="the crawl")
    jobdir.add_argument("path", metavar="PATH", help="the job directory; it must not be there, or be empty")
    jobdir.add_argument("--spider", metavar="NAME", help="its spider, or the .py file it is in")
    snapshot = commands.add_parser(
        "snapshot", parents=[where], help="write a crawl into a file, to be restored anywhere",
        description="Writes all of a crawl into a file: requests, what was seen, items, counters, state. Its "
        "workers must be paused, or gone. The crawl is not changed.",
    )  # fmt: skip
    snapshot.add_argument("crawl", metavar="CRAWL", help="the crawl")
    snapshot.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    snapshot.add_argument("--replace", action="store_true", help="write over a file that is there")
    restore = commands.add_parser(
        "restore", parents=[where], help="make a crawl of what snapshot wrote",
        description="Makes a crawl, in any store, of what 'snapshot' wrote. A file that is damaged or was "
        "cut off is refused, and nothing is restored.",
    )  # fmt: skip
    restore.add_argument("file", metavar="FILE", type=Path, help="the file that was written")
    restore.add_argument("--crawl", metavar="NAME", help="under this name (the one it had)")
    restore.add_argument("--replace", action="store_true", help="clear a crawl of this name first")


def run_transfer_command(place: Place, opts: argparse.Namespace) -> int:
    if opts.fleet_command == "import":
        return run_import(place, opts)
    if opts.fleet_command == "export":
        from scrapy_fleet.ops.jobdir.exporting import export_jobdir

        return export_jobdir(place, opts.crawl, Path(opts.path), spider=opts.spider, as_json=opts.as_json)
    from scrapy_fleet.ops import transfer

    if opts.fleet_command == "snapshot":
        return transfer.snapshot(place, opts.crawl, opts.file, replace=opts.replace, as_json=opts.as_json)
    return transfer.restore(place, opts.file, crawl=opts.crawl, replace=opts.replace, as_json=opts.as_json)
