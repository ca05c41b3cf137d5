"""Regular expressions from clients, limited to those that cannot block the loop.

Python's matcher backtracks, and `(a+)+b` on forty characters takes it a year. So an expression may only have few
repeats, side by side, with neither a repeat nor a choice inside one, and no back reference. Then a match of
`MATCHED_CHARACTERS_MAX` characters takes milliseconds at worst.
"""

from __future__ import annotations

import re
import warnings
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

from strandline.errors import InvalidConfig

REPEATS_MAX: Final = 3
"""Repeats without a fixed count in one expression. Each multiplies the work by the length of the text."""
CHOICES_MAX: Final = 32
"""Ways through the alternatives of one expression. Those of consecutive alternatives multiply."""
MATCHED_CHARACTERS_MAX: Final = 160

_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_PLAIN: Final = (
    _constants.LITERAL,
    _constants.NOT_LITERAL,
    _constants.ANY,
    _constants.IN,
    _constants.AT,
    _constants.CATEGORY,
)


def bounded_pattern(expression: str) -> re.Pattern[str]:
    """Compile an expression. Raise InvalidConfig if it is malformed, or could take too long."""
    try:
        with warnings.catch_warnings():
            # An expression whose meaning changes in the next Python is rejected, and must not write to our output.
            warnings.simplefilter("error")
            repeats, choices = _weigh(_parser.parse(expression), inside=False)
            pattern = re.compile(expression)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise InvalidConfig(f"{expression!r} is no regular expression: {error}") from error
    if repeats > REPEATS_MAX or choices > CHOICES_MAX:
        raise InvalidConfig(
            f"{expression!r} has {repeats} repeats and {choices} ways through its alternatives; {REPEATS_MAX} and "
            f"{CHOICES_MAX} are allowed"
        )
    return pattern


def matches(pattern: re.Pattern[str], text: str) -> bool:
    """Return whether the whole text matches. A text that is too long does not."""
    return len(text) <= MATCHED_CHARACTERS_MAX and pattern.fullmatch(text) is not None


def _weigh(parsed: Any, *, inside: bool) -> tuple[int, int]:
    """Count consecutive repeats without a fixed count, and the ways through alternatives."""
    repeats, choices = 0, 1
    for operation, argument in parsed:
        if operation in _PLAIN:
            continue
        if operation in _REPEATS and not inside:
            low, high, repeated = argument
            more, _ = _weigh(repeated, inside=high > 1)
            repeats += more + (low != high)
        elif operation is _constants.SUBPATTERN:
            more, ways = _weigh(argument[-1], inside=inside)
            repeats, choices = repeats + more, choices * ways
        elif operation is _constants.BRANCH and not inside:
            weights = [_weigh(branch, inside=False) for branch in argument[1]]
            repeats += max(more for more, _ in weights)
            choices *= sum(ways for _, ways in weights)
        else:
            where = " inside a repeat" if inside else ""
            raise InvalidConfig(f"{str(operation).lower()}{where} is not allowed in a regular expression here")
    return repeats, choices
