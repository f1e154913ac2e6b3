"""The commands: ``scrapy-fleet ...``, and ``scrapy fleet ...`` through ``command.py``.

What a command needs is imported when it runs: Scrapy alone takes longer to load than most of them take.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_fleet.ops.data_arguments import (
    DATA_COMMANDS,
    add_data_commands,
    finish_data_options,
    run_data_command,
)
from scrapy_fleet.ops.host_arguments import (
    HOST_COMMANDS,
    add_host_commands,
    finish_host_options,
    run_host_command,
)
from scrapy_fleet.ops.importing import run_import
from scrapy_fleet.ops.positive import positive
from scrapy_fleet.ops.push_arguments import add_push, finish_push_options
from scrapy_fleet.ops.seen_arguments import add_seen_command, finish_seen_options, run_seen_command
from scrapy_fleet.ops.transfer_arguments import (
    NEED_PROJECT,
    TRANSFER_COMMANDS,
    add_transfer_commands,
    run_transfer_command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.settings import BaseSettings

    from scrapy_fleet.ops.place import Place

DESCRIPTION = "Look after crawls that scrapy-fleet runs."
ACTIONS = ("list", "requeue", "drop")
EPILOG = """\
examples:
  %(prog)s demo                        see a worker killed, and nothing lost
  %(prog)s status                      the crawls of this project
  %(prog)s status news --watch         one of them, live
  %(prog)s items news --follow         what it finds, as lines of JSON
  %(prog)s dead news requeue --all     try again what was given up
  %(prog)s throttle HOST --delay 2     be gentler to a site, at once and everywhere
  %(prog)s why URL                     where it is, and what it waits for
  %(prog)s seen                        how many URLs it has met, and what they take
  %(prog)s doctor                      what is wrong, and how to mend it
"""


def add_commands(parser: argparse.ArgumentParser, prog: str) -> None:
    """Add the commands to a parser of ours or of Scrapy's."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    where = argparse.ArgumentParser(add_help=False, parents=[common])
    where.add_argument(
        "--url",
        metavar="URL",
        help="where the crawls are, as in FLEET_URL: sqlite:///folder, a file, redis://...",
    )
    where.add_argument("--jobdir", metavar="DIR", help="where the crawl is, as in JOBDIR")
    where.add_argument(
        "-s", metavar="NAME=VALUE", action="append", default=[], dest="own", help="set a setting"
    )
    crawl = argparse.ArgumentParser(add_help=False)
    crawl.add_argument("crawl", nargs="?", metavar="CRAWL", help="its name, if there are several")

    commands = parser.add_subparsers(
        dest="fleet_command", metavar="COMMAND", required=True, title="commands", prog=prog
    )
    status = commands.add_parser(
        "status", parents=[crawl, where], help="counters, workers and hosts of a crawl",
        description="How a crawl is doing: counters, workers, busiest hosts. Of several crawls, a line each.",
    )  # fmt: skip
    status.add_argument("--watch", action="store_true", help="every second, until the crawl has finished")

    hosts = commands.add_parser(
        "hosts", parents=[crawl, where], help="the hosts of a crawl: how they are treated, why they wait",
        description="The hosts of a crawl, those with most waiting first: how far apart and how many at "
        "a time their requests are, why they wait and until when, and what the fleet was told about them.",
    )  # fmt: skip
    hosts.add_argument("--limit", type=positive, default=20, metavar="N", help="how many (20)")

    add_host_commands(commands, where, prog)
    add_push(commands, where, prog)
    add_data_commands(commands, crawl, where, prog)
    add_seen_command(commands, where, prog)

    peek = commands.add_parser(
        "peek", parents=[crawl, where], help="the next requests",
        description="The next requests in the order they will be handed out; hosts whose requests have equal "
        "priority take turns.",
    )  # fmt: skip
    peek.add_argument("--host", metavar="HOST", help="only of this host (or download slot)")
    peek.add_argument("--limit", type=positive, default=20, metavar="N", help="how many (20)")
    peek.add_argument(
        "--kind", choices=["waiting", "leased"], default="waiting", help="leased: those in workers' hands"
    )

    commands.add_parser(
        "workers", parents=[crawl, where], help="the workers of a crawl",
        description="The workers of a crawl: what they hold, and when they are given up if they stay silent.",
    )  # fmt: skip
    commands.add_parser(
        "pause", parents=[crawl, where], help="let all workers hold until the crawl is resumed",
        description="All workers end what is in flight and hand back the rest. They run nothing new until "
        "the crawl is resumed. Workers that join later hold too.",
    )  # fmt: skip
    commands.add_parser(
        "resume", parents=[crawl, where], help="let a paused crawl go on",
        description="A paused crawl goes on.",
    )  # fmt: skip
    commands.add_parser(
        "stop", parents=[crawl, where], help="let all workers end",
        description="All workers end what is in flight, hand back the rest and leave. The command that "
        "started the crawl resumes it.",
    )  # fmt: skip
    clear = commands.add_parser(
        "clear", parents=[crawl, where], help="forget a crawl; asks first",
        description="Forget a crawl for good: requests, what was seen, items, counters and state. It asks "
        "first, and refuses while workers are in the crawl.",
    )  # fmt: skip
    clear.add_argument("--yes", action="store_true", dest="sure", help="do not ask")

    dead = commands.add_parser(
        "dead", parents=[where], help="requests that were given up: list, requeue, drop",
        usage=f"{prog} dead [CRAWL] [list|requeue|drop] [ID ...] [--all] [options]",
        description="Requests that were given up, with the reason. 'requeue' tries them again, "
        "'drop' forgets them: they count as done.",
    )  # fmt: skip
    dead.add_argument(
        "words", nargs="*", metavar="[CRAWL] ACTION [ID ...]", help="what to do; list if left out"
    )
    dead.add_argument("--all", action="store_true", dest="everything", help="requeue or drop all of them")
    dead.add_argument("--limit", type=positive, default=100, metavar="N", help="how many to list (100)")

    add_transfer_commands(commands, common, where, prog)

    commands.add_parser(
        "doctor", parents=[crawl, where], help="check the installation, the settings and the store",
        description="Checks the installation, the settings and the store; of what is wrong it says "
        "how to mend it. Exit code 1 if something is.",
    )  # fmt: skip

    demo = commands.add_parser(
        "demo", parents=[common], help="crawl a local site, kill a worker, count what was lost",
        description="Workers crawl a local site; half-way one is killed and replaced. The verdict comes from "
        "the site's own log.",
    )  # fmt: skip
    demo.add_argument("--pages", type=positive, default=2000, metavar="N", help="pages of the site (2000)")
    demo.add_argument("--workers", type=positive, default=2, metavar="N", help="workers at a time (2)")
    demo.add_argument("--keep", type=Path, metavar="DIR", help="keep the crawl and the logs in this folder")


def finish_options(parser: argparse.ArgumentParser, opts: argparse.Namespace, rest: list[str]) -> None:
    """Check what argparse cannot; ends with its usual message if something is wrong."""
    if hasattr(opts, "words") and not any(word.startswith("-") for word in rest):
        # argparse takes a list of words only in one piece; these came after an option.
        opts.words, rest = [*opts.words, *rest], []
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    for text in getattr(opts, "own", ()):
        if "=" not in text:
            parser.error(f"-s {text}: it must be NAME=VALUE")
    if opts.fleet_command in DATA_COMMANDS:
        finish_data_options(parser, opts)
    elif opts.fleet_command == "dead":
        _finish_dead(parser, opts)
    elif opts.fleet_command == "push":
        finish_push_options(parser, opts)
    elif opts.fleet_command == "seen":
        finish_seen_options(parser, opts)
    elif hasattr(opts, "words"):
        finish_host_options(parser, opts)


def _finish_dead(parser: argparse.ArgumentParser, opts: argparse.Namespace) -> None:
    words: list[str] = opts.words
    opts.crawl = None
    if words and (words[0] not in ACTIONS or (len(words) > 1 and words[1] in ACTIONS)):
        opts.crawl, *words = words
    opts.action, *ids = words or ["list"]
    if opts.action not in ACTIONS:
        parser.error(f"dead: {opts.action!r} is none of {', '.join(ACTIONS)}")
    if not all(text.isdecimal() for text in ids):
        parser.error(f"dead: an id is a number, as 'dead list' shows it; not {' '.join(ids)}")
    opts.ids = tuple(map(int, ids))
    if opts.action == "list":
        if ids or opts.everything:
            parser.error("dead list takes no ids and no --all")
    elif bool(ids) == opts.everything:
        parser.error(f"dead {opts.action} needs either ids or --all")


def run(opts: argparse.Namespace, settings: BaseSettings | None = None) -> int:
    """Run the command that was parsed; its exit code. Errors are told in one line."""
    from scrapy_fleet.errors import FleetError

    try:
        code = _run(opts, settings)
        sys.stdout.flush()  # what is left is written here, where it is seen to, and not at Python's end
        return code
    except FleetError as error:
        print(f"scrapy-fleet: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python must not stumble over it again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def _run(opts: argparse.Namespace, settings: BaseSettings | None) -> int:
    if opts.fleet_command == "demo":
        from scrapy_fleet.ops.demo import demo

        return demo(pages=opts.pages, workers=opts.workers, keep=opts.keep, as_json=opts.as_json)
    if opts.fleet_command == "import":
        return run_import(opts, settings, lambda: _place(opts, settings))
    if opts.fleet_command == "doctor":
        from scrapy_fleet.ops.doctor import doctor

        return doctor(_place(opts, settings), opts.crawl, as_json=opts.as_json)
    place = _place(opts, settings)
    if opts.fleet_command == "status":
        from scrapy_fleet.ops.status import status

        return status(place, opts.crawl, watch=opts.watch, as_json=opts.as_json)
    if opts.fleet_command == "hosts":
        from scrapy_fleet.ops.hosts import hosts

        return hosts(place, opts.crawl, limit=opts.limit, as_json=opts.as_json)
    if opts.fleet_command in DATA_COMMANDS:
        return run_data_command(place, opts)
    if opts.fleet_command in (*HOST_COMMANDS, "why"):
        return run_host_command(place, opts)
    if opts.fleet_command == "push":
        from scrapy_fleet.ops.push import push

        given = {
            "files": opts.file,
            "check_json": opts.check_json,
            "priority": opts.priority,
            "new": opts.new,
        }
        return push(place, opts.crawl, opts.tasks, **given)
    if opts.fleet_command == "seen":
        return run_seen_command(place, opts)
    if opts.fleet_command in TRANSFER_COMMANDS:
        return run_transfer_command(place, opts)
    if opts.fleet_command in ("workers", "pause", "resume", "stop", "clear"):
        return _control(place, opts)
    if opts.fleet_command == "peek":
        from scrapy_fleet.ops.entries import peek

        return peek(place, opts.crawl, host=opts.host, kind=opts.kind, limit=opts.limit, as_json=opts.as_json)
    from scrapy_fleet.ops.entries import dead

    return dead(
        place,
        opts.crawl,
        opts.action,
        ids=opts.ids,
        everything=opts.everything,
        limit=opts.limit,
        as_json=opts.as_json,
    )


def _control(place: Place, opts: argparse.Namespace) -> int:
    from scrapy_fleet.ops.control import clear, control, workers

    if opts.fleet_command == "workers":
        return workers(place, opts.crawl, as_json=opts.as_json)
    if opts.fleet_command == "clear":
        return clear(place, opts.crawl, sure=opts.sure, as_json=opts.as_json)
    return control(place, opts.crawl, opts.fleet_command, as_json=opts.as_json)


def _place(opts: argparse.Namespace, settings: BaseSettings | None) -> Place:
    from scrapy_fleet.ops.place import Place, project_settings

    named = opts.url is not None or opts.jobdir is not None
    # 'why' and 'seen' need the project's fingerprinter, wherever the crawl is.
    wants = opts.own or opts.fleet_command in ("doctor", "seen", "why", *NEED_PROJECT)
    if settings is None and (wants or not named):
        settings = project_settings()
        if settings is None and opts.own:
            from scrapy.settings import Settings

            settings = Settings()
    if settings is not None:
        for text in opts.own:
            name, _, value = text.partition("=")
            settings.set(name, value, "cmdline")
    return Place.of(opts.url, opts.jobdir, settings)


def main(argv: Sequence[str] | None = None) -> int:
    """``scrapy-fleet``."""
    from scrapy_fleet import __version__

    parser = argparse.ArgumentParser(
        "scrapy-fleet", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"scrapy-fleet {__version__}")
    add_commands(parser, "scrapy-fleet")
    opts, rest = parser.parse_known_args(argv)
    finish_options(parser, opts, rest)
    return run(opts)


if __name__ == "__main__":
    sys.exit(main())
