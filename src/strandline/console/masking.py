"""Masks: what of a record no visitor may see, by topic and JSON path. Applied before a value leaves the server.

    payments-* value $.card.number
    users key $
    orders value $.lines[*].email
    * header authorization

The first word is a topic, where `*` stands for anything. `$` alone masks the whole key or value. A value that is no
JSON is masked whole if a rule may concern it, because what it holds cannot be told.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import InvalidConfig

MASK: Final = "•••"
_PARTS: Final = ("key", "value", "header")
_STEP: Final = re.compile(r"\.(?P<deep>\.)?(?P<name>[^.\[\]*]+|\*)|\[(?P<index>\*|[0-9]+)\]|\['(?P<quoted>[^']+)'\]")


@dataclass(frozen=True)
class MaskRule:
    """One rule. `steps` lead to what is masked: a name, an index, `*` for every one, and `**` for any depth."""

    topic: str
    part: str
    steps: tuple[str | int, ...] = ()

    def concerns(self, topic: str, part: str) -> bool:
        return self.part == part and fnmatch.fnmatchcase(topic, self.topic)


def parse_mask(text: str) -> MaskRule:
    """Return the rule of a text. Raise InvalidConfig for another form."""
    words = text.split(None, 2)
    if len(words) != 3 or words[1] not in _PARTS:
        raise InvalidConfig(
            f"mask {text!r} cannot be read; expected TOPIC key|value|header PATH, as docs/console.md has"
        )
    topic, part, path = words
    if part == "header":
        return MaskRule(topic, part, (path,))
    if not path.startswith("$"):
        raise InvalidConfig(f"mask {text!r}: a path begins with $, for example $.card.number")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise InvalidConfig(f"mask {text!r}: the path cannot be read at character {at + 1}")
        at = match.end()
        if match["deep"]:
            steps.append("**")
        name, index = match["name"] or match["quoted"], match["index"]
        steps.append(name if name is not None else index if index == "*" else int(index))
    return MaskRule(topic, part, tuple(steps))


class TopicMasks:
    """The rules that concern one topic."""

    def __init__(self, rules: Sequence[MaskRule], topic: str) -> None:
        self._rules = {part: [each.steps for each in rules if each.concerns(topic, part)] for part in _PARTS}

    @property
    def is_empty(self) -> bool:
        return not any(self._rules.values())

    def concerns(self, part: str) -> bool:
        """Return whether a key or value that is not JSON, and the raw bytes of any, must be masked whole."""
        return bool(self._rules[part])

    def json(self, part: str, value: Any) -> Any:
        """Return a decoded key or value with what is masked replaced; the given one is not changed."""
        for steps in self._rules[part]:
            value = _masked(value, steps)
        return value

    def header(self, name: str, value: Any) -> Any:
        wanted = (str(steps[0]).lower() for steps in self._rules["header"])
        return MASK if any(fnmatch.fnmatchcase(name.lower(), each) for each in wanted) else value


def _masked(value: Any, steps: Sequence[str | int]) -> Any:
    if not steps:
        return MASK
    step, rest = steps[0], steps[1:]
    if step == "**" and not isinstance(value, str):
        inner = _masked(value, rest)
        if isinstance(inner, dict):
            return {name: _masked(each, steps) if each != MASK else each for name, each in inner.items()}
        return [_masked(each, steps) for each in inner] if isinstance(inner, list) else inner
    if isinstance(value, dict):
        return {name: _masked(each, rest) if step in ("*", name) else each for name, each in value.items()}
    if isinstance(value, list):
        if isinstance(step, str) and step != "*":
            # A path that forgets `[*]` masks too much rather than too little.
            return [_masked(each, steps) for each in value]
        return [_masked(each, rest) if step in ("*", at) else each for at, each in enumerate(value)]
    # JSON inside a string is data, too, and so is JSON inside a string of JSON: what it holds is not shown.
    is_json = isinstance(value, str) and value.lstrip().lstrip("\ufeff").lstrip().startswith(("{", "[", '"'))
    return MASK if is_json else value
