"""Debezium's lists of regular expressions: separated by commas, matched with whole names, upper and lower case alike.

A comma of an expression is written `\\,`. RE2 matches them, so no expression takes for ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from strandline.connect.transforms.patterns import compiled

_SEPARATOR: Final = re.compile(r"((?:\\.|[^\\,])*)(?:,|$)", re.DOTALL)


def split_expressions(text: str) -> list[str]:
    """Return the expressions of a list."""
    found = (each.strip().replace("\\,", ",") for each in _SEPARATOR.findall(text))
    return [each for each in found if each]


def wrong_expressions(value: Sequence[str] | str | None) -> str | None:
    """Return what is wrong with a list of expressions. A list whose commas were taken for separators is joined."""
    try:
        NamePatterns(value or "")
    except ValueError as error:
        return f"A comma-separated list of valid regular expressions is expected, but {error}"
    return None


class NamePatterns:
    """Regular expressions for names; a name has to match one of them as a whole."""

    def __init__(self, value: Sequence[str] | str) -> None:
        """Raise ValueError if one is malformed."""
        text = value if isinstance(value, str) else ",".join(value)
        if (len(text) - len(text.rstrip("\\"))) % 2:
            raise ValueError("Unterminated escape sequence at the end of the string")
        self.expressions: Final = tuple(split_expressions(text))
        self._patterns: Final[list[Any]] = [compiled(f"(?i:{each})") for each in self.expressions]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def matches(self, name: str) -> bool:
        """Return whether a name matches an expression."""
        return any(each.fullmatch(name) is not None for each in self._patterns)
