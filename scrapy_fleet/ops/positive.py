"""A number that people give to a command: 1 or more."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return value


positive.__name__ = "number"  # what argparse calls it in its messages
