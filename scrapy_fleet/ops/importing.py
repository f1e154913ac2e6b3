"""``import``: takes crawls of other schedulers over. A source is one line in ``SOURCES``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_fleet.ops import import_redis_arguments

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings


class Source(NamedTuple):
    """What can be taken over. Neither function may cost time before it is called."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, BaseSettings | None], int]


SOURCES: dict[str, Source] = {
    "scrapy-redis": Source(
        import_redis_arguments.HELP, import_redis_arguments.add_arguments, import_redis_arguments.run
    ),
}


def add_import(commands: Any, common: argparse.ArgumentParser, prog: str) -> None:
    parser = commands.add_parser(
        "import", help="take over what another scheduler has",
        description="Takes over what another scheduler has of a crawl: what waits, and what was seen. It "
        "says what it will do, does it with --yes, can be repeated, and changes nothing of what it reads.",
    )  # fmt: skip
    sources = parser.add_subparsers(dest="source", metavar="SOURCE", required=True, prog=f"{prog} import")
    for name, source in SOURCES.items():
        source.add_arguments(
            sources.add_parser(name, parents=[common], help=source.help, description=source.help)
        )


def run_import(opts: argparse.Namespace, settings: BaseSettings | None) -> int:
    return SOURCES[opts.source].run(opts, settings)
