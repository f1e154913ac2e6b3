"""``import``: brings what other tools kept into a crawl. A source is one more line in ``SOURCES``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_fleet.ops import import_redis_arguments

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_fleet.ops.place import Place


class Source(NamedTuple):
    """What can be brought in. None of its functions may cost time before it is called."""

    help: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, BaseSettings | None, Callable[[], Place]], int]
    """With the settings of the project, if ``scrapy`` knows them, and what says where the crawl is."""
    says_where: bool = True
    """It takes the options that say where the crawl is; else it has its own."""


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


def _jobdir(opts: argparse.Namespace, settings: BaseSettings | None, place: Callable[[], Place]) -> int:
    from scrapy_fleet.ops.jobdir.importing import import_jobdir

    return import_jobdir(place(), opts)


def _scrapy_redis(opts: argparse.Namespace, settings: BaseSettings | None, place: Callable[[], Place]) -> int:
    from scrapy_fleet.ops.import_redis import import_redis

    return import_redis(opts, settings)


SOURCES = {
    "jobdir": Source(
        "a job directory of Scrapy (JOBDIR), also after a crash",
        "Says what is in a job directory and what of it can be read, asks, and brings it into a crawl: "
        "waiting requests, what was seen, spider.state. The directory is not changed; repeating it adds "
        "nothing twice.",
        _jobdir_arguments,
        _jobdir,
    ),
    "scrapy-redis": Source(
        import_redis_arguments.HELP,
        "Takes over what scrapy-redis has of a crawl: what waits, what was seen, start URLs. It says what it "
        "will do, does it with --yes, can be repeated, and changes nothing of what it reads.",
        import_redis_arguments.add_arguments,
        _scrapy_redis,
        says_where=False,
    ),
}


def add_import(
    commands: Any, common: argparse.ArgumentParser, where: argparse.ArgumentParser, prog: str
) -> None:
    parser = commands.add_parser(
        "import", help=f"bring in what others kept: {', '.join(SOURCES)}",
        description="Brings what other tools kept into a crawl.",
    )  # fmt: skip
    sources = parser.add_subparsers(dest="source", metavar="SOURCE", required=True, prog=f"{prog} import")
    for name, source in SOURCES.items():
        parents = [where if source.says_where else common]
        source.arguments(
            sources.add_parser(name, parents=parents, help=source.help, description=source.description)
        )


def run_import(opts: argparse.Namespace, settings: BaseSettings | None, place: Callable[[], Place]) -> int:
    return SOURCES[opts.source].run(opts, settings, place)
