"""Regular expressions of configs, written for Java, by RE2: no pattern takes for ever.

RE2 has no look-ahead and no back references; a config with these is rejected, and says so.
"""

from __future__ import annotations

from typing import Any, Final

import re2

_GROUP_DIGITS: Final = "0123456789"


def wrong_pattern(text: str) -> str | None:
    """Return what is wrong with a pattern."""
    try:
        compiled(text)
    except ValueError as error:
        return f"Invalid regex: {error}"
    return None


def compiled(text: str) -> Any:
    """Return a pattern that can be matched. Raise ValueError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it is malformed"
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None


class JavaReplacement:
    """A replacement in Java's syntax: `$1` and `${name}` are groups, a backslash takes the next character as it is."""

    def __init__(self, text: str, pattern: Any) -> None:
        """Raise ValueError, in Java's words, if the pattern has no such group."""
        self._parts: list[str | int] = []
        at = 0
        while at < len(text):
            if text[at] == "\\":
                if at + 1 == len(text):
                    raise ValueError("character to be escaped is missing")
                self._parts.append(text[at + 1])
                at += 2
            elif text[at] == "$":
                group, at = _group(text, at + 1, pattern)
                self._parts.append(group)
            else:
                self._parts.append(text[at])
                at += 1

    def first_in(self, text: str, match: Any) -> str:
        """Return a text with the match replaced."""
        found = "".join(each if isinstance(each, str) else match.group(each) or "" for each in self._parts)
        begin, end = match.span()
        return f"{text[:begin]}{found}{text[end:]}"


def _group(text: str, at: int, pattern: Any) -> tuple[int, int]:
    """Return the group that is named behind a dollar sign, and what follows it."""
    if text[at : at + 1] == "{":
        end = text.find("}", at)
        name = text[at + 1 : end]
        if end < 0 or not name:
            raise ValueError("named capturing group is missing trailing '}'")
        if name not in pattern.groupindex:
            raise ValueError(f"No group with name {{{name}}}")
        return pattern.groupindex[name], end + 1
    if at >= len(text) or text[at] not in _GROUP_DIGITS:
        raise ValueError("Illegal group reference")
    group = int(text[at])
    if group > pattern.groups:
        raise ValueError(f"No group {group}")
    at += 1
    # As many digits as make the number of a group.
    while at < len(text) and text[at] in _GROUP_DIGITS and group * 10 + int(text[at]) <= pattern.groups:
        group = group * 10 + int(text[at])
        at += 1
    return group, at
