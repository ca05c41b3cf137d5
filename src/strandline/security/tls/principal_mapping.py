r"""`ssl.principal.mapping.rules`: from the subject of a client certificate to the name of its principal.

Rules are separated by commas, and the first one that matches decides. `DEFAULT` takes the subject as it is.
`RULE:pattern/replacement/` needs a pattern that matches the whole subject. `$1` is a group, `\/` a slash in either
part, and `L` or `U` at the end changes the case. Without a match the client is rejected. Patterns are Java's, as far as
Python's `re` reads them the same way; others are rejected when the node starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.errors import InvalidConfig

SETTING: Final = "ssl.principal.mapping.rules"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """Return the name, or None if this rule does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        # As in Java, every match within the subject is replaced, also an empty one at its end.
        name = self.pattern.sub(self._replaced, subject)
        if self.case:
            name = name.lower() if self.case == "L" else name.upper()
        return name

    def _replaced(self, match: re.Match[str]) -> str:
        groups = match.re.groups

        def part(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            # As many digits as make a group that the pattern has; with none of them it is text, as in Kafka.
            digits = found[2]
            for size in range(len(digits), 0, -1):
                if int(digits[:size]) <= groups:
                    return (match[int(digits[:size])] or "") + digits[size:]
            return found[0]

        return _REFERENCE.sub(part, self.replacement)


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Raise InvalidConfig for a rule that is none."""
        self._rules = list(_parsed(rules.strip() or "DEFAULT"))

    def name_of(self, subject: str) -> str | None:
        """Return the name of the principal with this subject; None if no rule matches."""
        return next((name for rule in self._rules if (name := rule.apply(subject)) is not None), None)


def _parsed(rules: str) -> Iterator[MappingRule]:
    at = 0
    while at < len(rules):
        match = _RULE.match(rules, at)
        if match is None:
            raise InvalidConfig(
                f"{SETTING} has {rules[at:]!r}; expected DEFAULT or RULE:pattern/replacement/, with L or U behind it"
            )
        at = match.end()
        if match[1] is not None:
            yield MappingRule(None, "", "")
            continue
        try:
            pattern = re.compile(match[2])
        except re.error as error:
            raise InvalidConfig(
                f"{SETTING} has the pattern {match[2]!r}, which is not understood: {error}; expected a regular "
                "expression that Java and Python share"
            ) from error
        yield MappingRule(pattern, match[3], match[4])
