"""The arguments of the commands about what comes out of a crawl, and what is taken into one."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_fleet.ops.place import Place

DATA_COMMANDS = ("items", "stats")


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError("it must be a number of seconds, above 0")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("it must be 0 or more")
    return value


for _kind in (_seconds, _whole):
    _kind.__name__ = "number"  # what argparse calls it in its messages


def add_data_commands(
    commands: Any, crawl: argparse.ArgumentParser, where: argparse.ArgumentParser, prog: str
) -> None:
    items = commands.add_parser(
        "items", parents=[crawl, where], help="what a crawl has found: read, follow, export, consume",
        description="The items that FleetPipeline keeps, oldest first, as lines of JSON or a table. With "
        "--group, processors share the work: each item goes to one of them, and comes to another if "
        "it is not acknowledged, which is done when it has been written.",
    )  # fmt: skip
    items.add_argument("--follow", action="store_true", help="go on until the crawl has finished")
    items.add_argument(
        "--format", choices=["jsonl", "csv"], default="jsonl", help="lines of JSON (jsonl), or a table (csv)"
    )
    items.add_argument("--fields", metavar="A,B,...", help="only these columns of the table, in this order")
    items.add_argument("--output", type=Path, metavar="FILE", help="write to a file")
    items.add_argument("--after", type=_whole, default=0, metavar="N", help="only items after this number")
    items.add_argument("--limit", type=_whole, metavar="N", help="at most so many")
    items.add_argument("--group", metavar="NAME", help="take part in the work of a group")
    items.add_argument("--consumer", metavar="NAME", help="who takes part (one name for every process)")
    items.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS",
        help="when an item that was not acknowledged comes to another of the group (60)",
    )  # fmt: skip
    items.add_argument("--groups", action="store_true", help="show the groups, and what is left for each")
    items.add_argument("--forget", action="store_true", help="forget the group")
    items.add_argument("--trim", action="store_true", help="remove what all groups have acknowledged")
    commands.add_parser(
        "stats", parents=[crawl, where], help="the counters of all workers together",
        description="Scrapy's counters of this run, summed over all workers.",
    )  # fmt: skip


def finish_data_options(parser: argparse.ArgumentParser, opts: argparse.Namespace) -> None:
    """Check what argparse cannot."""
    if opts.fleet_command != "items":
        return
    alone = opts.groups or opts.forget
    others = opts.follow or opts.output or opts.consumer or opts.trim or opts.fields or opts.limit is not None
    if alone and (others or (opts.groups and (opts.group or opts.forget))):
        parser.error("items: --groups stands alone, --forget with --group only")
    if opts.group is None:
        if opts.forget:
            parser.error("items: --forget needs --group")
        if opts.consumer:
            parser.error("items: --consumer needs --group")
        if opts.trim and (opts.follow or opts.output or opts.fields or opts.limit is not None):
            parser.error("items: --trim stands alone, or with --group")
    elif opts.after:
        parser.error("items: a group goes on where it was; --after does not go with --group")
    if opts.format == "csv":
        if (opts.follow or opts.group) and not opts.fields:
            parser.error("items: which columns a table has must be known first: add --fields")
        if opts.as_json:
            parser.error("items: --json goes with lines of JSON, not with --format csv")
    elif opts.fields:
        parser.error("items: --fields goes with --format csv")


def run_data_command(place: Place, opts: argparse.Namespace) -> int:
    if opts.fleet_command == "stats":
        from scrapy_fleet.ops.stats import stats

        return stats(place, opts.crawl, as_json=opts.as_json)
    from scrapy_fleet.ops.items import Wanted, forget, groups, items

    if opts.groups:
        return groups(place, opts.crawl, as_json=opts.as_json)
    if opts.forget:
        return forget(place, opts.crawl, opts.group, as_json=opts.as_json)
    wanted = Wanted(
        follow=opts.follow,
        format=opts.format,
        fields=tuple(name.strip() for name in (opts.fields or "").split(",") if name.strip()),
        output=opts.output,
        group=opts.group,
        consumer=opts.consumer,
        timeout=opts.timeout,
        after=opts.after,
        limit=opts.limit,
        trim=opts.trim,
        as_json=opts.as_json,
    )
    return items(place, opts.crawl, wanted)
