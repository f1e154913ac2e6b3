"""The arguments of ``seen``: what a crawl has met."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scrapy_fleet.ops.positive import positive

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_fleet.ops.place import Place

SEEN_ACTIONS = ("has", "forget", "import", "export", "convert")
KINDS = ("exact", "bloom", "rolling", "off")
OPTIONS = {
    "sure": ("--yes", ("forget", "convert")),
    "create": ("--create", ("import",)),
    "output": ("--output", ("export",)),
    "limit": ("--limit", ("forget",)),
    "capacity": ("--capacity", ("convert",)),
    "error_rate": ("--error", ("convert",)),
    "window": ("--window", ("convert",)),
    "hot": ("--hot", ("convert",)),
}
"""Where they are kept, how they are written, and with what they go."""
NEEDS = {"has": "URL ...", "forget": "URL|PATTERN ...", "import": "FILE", "convert": "KIND"}


def _as_setting(name: str) -> Callable[[str], Any]:
    """A value that is checked as the setting of this name is."""

    def parse(text: str) -> Any:
        from scrapy_fleet.settings import TABLE

        [setting] = (each for each in TABLE if each.name == name)
        try:
            return setting.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def add_seen_command(commands: Any, where: argparse.ArgumentParser, prog: str) -> None:
    seen = commands.add_parser(
        "seen", parents=[where], help="what a crawl has met: has, forget, import, export, convert",
        usage=f"{prog} seen [CRAWL] [has URL ... | forget URL|PATTERN ... | import FILE | export | "
        "convert KIND] [options]",
        description="What a crawl has met: how many URLs, what they take, and how sure it is. It keeps "
        "64 bits of their fingerprints, not the URLs.",
    )  # fmt: skip
    seen.add_argument(
        "words", nargs="*", metavar="[CRAWL] ACTION ...", help="what to do; a summary if left out"
    )
    seen.add_argument("--yes", action="store_true", dest="sure", help="forget, convert: do not ask")
    seen.add_argument("--create", action="store_true", help="import: make the crawl if it is not there")
    seen.add_argument("--output", metavar="FILE", help="export: write to this file")
    seen.add_argument(
        "--limit", type=positive, metavar="N", help="forget: how many waiting requests to look at"
    )
    seen.add_argument(
        "--capacity", type=_as_setting("FLEET_SEEN_CAPACITY"), metavar="N",
        help="convert: as FLEET_SEEN_CAPACITY",
    )  # fmt: skip
    seen.add_argument(
        "--error", type=_as_setting("FLEET_SEEN_ERROR"), metavar="SHARE", dest="error_rate",
        help="convert: as FLEET_SEEN_ERROR",
    )  # fmt: skip
    seen.add_argument(
        "--window", type=_as_setting("FLEET_SEEN_WINDOW"), metavar="TIME",
        help="convert: as FLEET_SEEN_WINDOW",
    )  # fmt: skip
    seen.add_argument(
        "--hot", type=_as_setting("FLEET_SEEN_HOT"), metavar="N", help="convert: as FLEET_SEEN_HOT"
    )


def finish_seen_options(parser: argparse.ArgumentParser, opts: argparse.Namespace) -> None:
    """Sort the words; ends with argparse's message if something is wrong."""
    words: list[str] = opts.words
    opts.crawl = None
    if words and (words[0] not in SEEN_ACTIONS or (len(words) > 1 and words[1] in SEEN_ACTIONS)):
        opts.crawl, *words = words
        if "://" in opts.crawl:
            parser.error(f"seen: what about {opts.crawl}? Say has or forget before it")
    action, *rest = words or ["show"]
    if action not in SEEN_ACTIONS and words:
        parser.error(f"seen: {action!r} is none of {', '.join(SEEN_ACTIONS)}")
    needs = NEEDS.get(action, "")
    if needs and not rest:
        parser.error(f"seen {action}: the following arguments are required: {needs}")
    if rest and not needs.endswith("...") and len(rest) > bool(needs):
        parser.error(f"seen {action} takes {needs or 'no words after it'}; not {' '.join(rest)}")
    if action == "convert" and rest[0] not in KINDS:
        parser.error(f"seen convert: {rest[0]!r} is none of {', '.join(KINDS)}")
    for name, (option, actions) in OPTIONS.items():
        if getattr(opts, name) and action not in actions:
            parser.error(f"{option} goes with seen {' and seen '.join(actions)} only")
    opts.action, opts.what = action, rest


def run_seen_command(place: Place, opts: argparse.Namespace) -> int:
    from scrapy_fleet.ops import seen

    if opts.action == "show":
        return seen.show(place, opts.crawl, as_json=opts.as_json)
    if opts.action == "has":
        return seen.has(place, opts.crawl, opts.what, as_json=opts.as_json)
    if opts.action == "export":
        return seen.export(place, opts.crawl, opts.output, as_json=opts.as_json)
    if opts.action == "forget":
        from scrapy_fleet.ops.seen_forget import forget

        return forget(place, opts.crawl, opts.what, limit=opts.limit, sure=opts.sure, as_json=opts.as_json)
    from scrapy_fleet.ops import seen_changes

    if opts.action == "import":
        [file] = opts.what
        return seen_changes.take_in(place, opts.crawl, file, create=opts.create, as_json=opts.as_json)
    [kind] = opts.what
    own = {"capacity": opts.capacity, "error": opts.error_rate, "window": opts.window, "hot": opts.hot}
    wanted = {name: value for name, value in own.items() if value is not None}
    return seen_changes.convert(place, opts.crawl, kind, wanted, sure=opts.sure, as_json=opts.as_json)
