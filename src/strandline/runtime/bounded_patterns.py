"""Regular expressions of strangers, only such as cannot keep the loop.

Python's matcher goes back and tries again, and `(a+)+b` on forty characters takes it a year. An expression is refused
unless its repeats stand side by side, few of them, with neither a repeat nor a choice inside one and no reference back;
then a match of `MATCHED_CHARACTERS_MAX` characters is a matter of milliseconds at the worst.
"""

from __future__ import annotations

import re
import warnings
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

from strandline.errors import InvalidConfig

REPEATS_MAX: Final = 3
"""Repeats without a fixed number on the way through one expression; each multiplies the work by the text's length."""
CHOICES_MAX: Final = 32
"""Ways through the alternatives of one expression; two after each other multiply."""
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
    """The compiled expression; InvalidConfig for one that is none, or that could take for ever."""
    try:
        with warnings.catch_warnings():
            # What means something else in the next Python is refused; and a stranger is not to write to our output.
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
    """Whether the whole text fits; one that is longer than is looked at does not."""
    return len(text) <= MATCHED_CHARACTERS_MAX and pattern.fullmatch(text) is not None


def _weigh(parsed: Any, *, inside: bool) -> tuple[int, int]:
    """How many repeats without a fixed number follow each other, and how many ways lead through alternatives."""
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
