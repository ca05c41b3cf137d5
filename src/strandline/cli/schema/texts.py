"""Schemas for people: indented, and compared line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from difflib import unified_diff

from strandline.cli.common.output import Output, colours_wanted

_COLOURS = {"+": "32", "-": "31", "@": "36"}


def readable(text: str, kind: str) -> str:
    """Return a schema as a person would write it."""
    if kind == "PROTOBUF":
        return text.rstrip("\n")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def diff_lines(before: str, after: str, names: tuple[str, str]) -> list[str]:
    """Return the lines that differ, with some around them; none if the texts are equal."""
    return list(unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))


def print_diff(output: Output, lines: Iterable[str]) -> None:
    """Print a diff; on a terminal what came is green, and what went is red."""
    colours = output.is_terminal and colours_wanted(sys.stdout)
    for line in lines:
        colour = _COLOURS.get(line[:1]) if colours else None
        output.line(line if colour is None else f"\033[{colour}m{line}\033[0m")
