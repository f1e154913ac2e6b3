"""The arguments of the commands about one host or one URL: ``throttle``, ``block``, ``boost``, ``why``."""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING, Any

from scrapy_fleet.ops.positive import positive

if TYPE_CHECKING:
    from scrapy_fleet.ops.place import Place

HOST_COMMANDS = ("throttle", "block", "unblock", "boost")
BOOST = 10
MOST_BOOST = 1_000_000_000
MOST_AT_A_TIME = 1_000_000
LOOK_AT = 200_000
"""How many waiting requests ``why`` looks at, if it is not told."""
NUMBER = re.compile(r"[-+]?\d+")


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError("it must be a number of seconds, 0 or more")
    return value


def _at_a_time(text: str) -> int:
    value = int(text)
    if value == 0:
        raise argparse.ArgumentTypeError("it must be 1 or more; to hold a host altogether: block HOST")
    if not 1 <= value <= MOST_AT_A_TIME:
        raise argparse.ArgumentTypeError(f"it must be 1 to {MOST_AT_A_TIME:,}")
    return value


for _kind in (_seconds, _at_a_time):
    _kind.__name__ = "number"  # what argparse calls it in its messages


def add_host_commands(commands: Any, where: argparse.ArgumentParser, prog: str) -> None:
    def add(name: str, words: str, options: str, help: str, description: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(
            name, parents=[where], help=help, description=description,
            usage=f"{prog} {name} [CRAWL] {words}{options} [options]",
        )  # fmt: skip
        about = "with http:// or https://" if words == "URL" else "HOST may be a URL of it"
        parser.add_argument("words", nargs="*", metavar=f"[CRAWL] {words}", help=about)
        return parser

    throttle = add(
        "throttle", "HOST", " [--delay SECONDS] [--concurrency N] [--reset]",
        "set the delay and the concurrency of a host",
        "Tells the whole fleet how far apart and how many at a time the requests to a host are. It goes "
        "before the settings, robots.txt and AutoThrottle, until it is taken back.",
    )  # fmt: skip
    throttle.add_argument(
        "--delay", type=_seconds, metavar="SECONDS", help="the least distance between requests"
    )
    throttle.add_argument("--concurrency", type=_at_a_time, metavar="N", help="how many at a time")
    throttle.add_argument("--reset", action="store_true", help="take both back")
    add(
        "block", "HOST", "", "run no requests of a host until it is unblocked",
        "No requests of a host run until it is unblocked; those under way end. They wait, nothing is lost.",
    )  # fmt: skip
    add("unblock", "HOST", "", "let a blocked host go on", "The requests of a blocked host run again.")
    add(
        "boost", "HOST [N]", "", "prefer the requests of a host",
        f"Adds N ({BOOST} if left out) to the priority of all requests of a host, where hosts compete. "
        "0 takes it back; less than 0 puts the host behind others.",
    )  # fmt: skip
    why = add(
        "why", "URL", "", "where a URL is: unknown, waiting, leased, done or dead",
        "Where a URL is: unknown, waiting (behind how many, and for what), leased (by whom), done, or dead "
        "(why).",
    )  # fmt: skip
    why.add_argument("--slot", metavar="NAME", help="the download slot to look in, if it is not the host's")
    why.add_argument(
        "--limit", type=positive, default=LOOK_AT, metavar="N",
        help=f"how many waiting requests to look at ({LOOK_AT:,})",
    )  # fmt: skip


def finish_host_options(parser: argparse.ArgumentParser, opts: argparse.Namespace) -> None:
    """Sort the words; ends with argparse's message if something is wrong."""
    command: str = opts.fleet_command
    words: list[str] = opts.words
    if command == "boost":
        opts.by = BOOST
        if len(words) > 1 and NUMBER.fullmatch(words[-1]):
            *words, by = words
            opts.by = int(by)
            if abs(opts.by) > MOST_BOOST:
                parser.error(f"boost: N must be {-MOST_BOOST:,} to {MOST_BOOST:,}")
    what = "URL" if command == "why" else "HOST"
    if not words:
        parser.error(f"{command}: the following arguments are required: {what}")
    if len(words) > 2:
        more = "" if command != "boost" else ", and a whole number"
        parser.error(f"{command} takes the name of a crawl and a {what}{more}; not {' '.join(words)}")
    opts.crawl = words[0] if len(words) == 2 else None
    opts.what = words[-1]
    if command == "throttle":
        given = opts.delay is not None or opts.concurrency is not None
        if given == opts.reset:
            parser.error(
                "throttle: --reset takes both back, and goes with neither"
                if given
                else "throttle needs --delay, --concurrency or --reset"
            )


def run_host_command(place: Place, opts: argparse.Namespace) -> int:
    if opts.fleet_command == "why":
        from scrapy_fleet.ops.why import why

        return why(place, opts.crawl, opts.what, slot=opts.slot, limit=opts.limit, as_json=opts.as_json)
    from scrapy_fleet.ops import overrides

    if opts.fleet_command == "throttle":
        return overrides.throttle(
            place,
            opts.crawl,
            opts.what,
            delay=opts.delay,
            concurrency=opts.concurrency,
            reset=opts.reset,
            as_json=opts.as_json,
        )
    if opts.fleet_command == "boost":
        return overrides.boost(place, opts.crawl, opts.what, by=opts.by, as_json=opts.as_json)
    blocked = opts.fleet_command == "block"
    return overrides.block(place, opts.crawl, opts.what, blocked=blocked, as_json=opts.as_json)
