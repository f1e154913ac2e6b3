"""``python -m scrapy_fleet.ops.site SHAPE_JSON``: serve a site until stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from pathlib import Path

from scrapy_fleet.ops.site.server import listen, serve
from scrapy_fleet.ops.site.shape import Shape, Site


def end_with_parent() -> None:
    """Whoever started us holds the other end of our standard input: when it ends, so do we."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser("python -m scrapy_fleet.ops.site", description="Serve a site to crawl.")
    parser.add_argument("shape", nargs="?", default="{}", help='JSON, as in {"kind": "links", "pages": 5000}')
    parser.add_argument("--port", type=int, default=0, help="0: any free port; it is printed")
    parser.add_argument("--log", type=Path, help="append a line for every request and answer")
    parser.add_argument("--end-with-parent", action="store_true", help="stop when standard input ends")
    args = parser.parse_args()
    try:
        site = Site(Shape.from_json(args.shape))
        sockets = listen(site, args.port)
    except (TypeError, ValueError, OSError) as error:
        parser.error(str(error))
    if args.end_with_parent:
        threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(site, sockets, args.log))


if __name__ == "__main__":
    main()
