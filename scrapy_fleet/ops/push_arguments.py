"""The arguments of ``push``."""

from __future__ import annotations

import argparse
from copy import deepcopy
from pathlib import Path
from typing import Any


def add_push(commands: Any, where: argparse.ArgumentParser, prog: str) -> None:
    # A copy: where its --json takes the place of the shared one, others would lose theirs.
    push = commands.add_parser(
        "push", parents=[deepcopy(where)], conflict_handler="resolve", help="give a crawl tasks",
        usage=f"{prog} push CRAWL [TASK ...] [--file FILE] [--json] [--priority N] [--new] [options]",
        description="Tasks for a spider that is fed with them: URLs, JSON objects with the fields of a "
        "request (url, method, headers, cookies, body, meta, priority, callback, ...), or whatever its "
        "make_requests() reads. With neither tasks nor files, or with -, they are read from standard input, "
        "a line each, as they come.",
    )  # fmt: skip
    push.add_argument("words", nargs="+", metavar="CRAWL [TASK ...]", help="the crawl, and tasks for it")
    push.add_argument(
        "--file", action="append", default=[], type=Path, metavar="FILE", help="a file of tasks, a line each"
    )
    push.add_argument("--json", action="store_true", dest="check_json", help="refuse what is not JSON")
    push.add_argument("--priority", type=int, default=0, metavar="N", help="higher ones are run earlier (0)")
    push.add_argument("--new", action="store_true", help="make the crawl if it is not there")
    push.set_defaults(as_json=False)


def finish_push_options(parser: argparse.ArgumentParser, opts: argparse.Namespace) -> None:
    opts.crawl, *opts.tasks = opts.words
    if abs(opts.priority) > 1 << 50:
        parser.error("push: --priority is too large")
