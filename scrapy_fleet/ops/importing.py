"""``import``: brings what other tools kept into a crawl. A source is one more line in ``SOURCES``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from scrapy_fleet.ops.place import Place


class Source(NamedTuple):
    help: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Place, Any], int]


def _jobdir_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the job directory; it is only read")
    parser.add_argument("--crawl", metavar="NAME", help="into this crawl (the spider's)")
    parser.add_argument(
        "--spider",
        metavar="NAME",
        help="its spider, or the .py file it is in; may be left out where it is clear",
    )
    parser.add_argument(
        "--trust-pickle",
        action="store_true",
        help="read pickled requests; only plain data is taken from them",
    )
    parser.add_argument(
        "--seeds", choices=["auto", "run", "skip"], default="auto",
        help="run start() of the spider (again); auto: only if Scrapy did not end in order",
    )  # fmt: skip
    parser.add_argument(
        "--forget-seen", action="store_true", help="do not mark what was seen: pages are fetched again"
    )
    parser.add_argument("--yes", action="store_true", dest="sure", help="do not ask")


def _jobdir(place: Place, opts: Any) -> int:
    from scrapy_fleet.ops.jobdir.importing import import_jobdir

    return import_jobdir(place, opts)


SOURCES = {
    "jobdir": Source(
        "a job directory of Scrapy (JOBDIR), also after a crash",
        "Says what is in a job directory and what of it can be read, asks, and brings it into a crawl: "
        "waiting requests, what was seen, spider.state. The directory is not changed; repeating it adds "
        "nothing twice.",
        _jobdir_arguments,
        _jobdir,
    ),
}


def add_import(commands: Any, where: argparse.ArgumentParser, prog: str) -> None:
    parser = commands.add_parser(
        "import", help=f"bring in what others kept: {', '.join(SOURCES)}",
        description="Brings what other tools kept into a crawl.",
    )  # fmt: skip
    sources = parser.add_subparsers(dest="source", metavar="SOURCE", required=True, prog=f"{prog} import")
    for name, source in SOURCES.items():
        source.arguments(
            sources.add_parser(name, parents=[where], help=source.help, description=source.description)
        )


def run_import(place: Place, opts: Any) -> int:
    return SOURCES[opts.source].run(place, opts)
