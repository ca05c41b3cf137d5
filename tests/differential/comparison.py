"""Where two outcomes differ, in words: the fields that differ, with the value on either side.

Differences of a general kind, such as an explanation where Kafka gives none, are told apart by name, so that they need
not be listed case by case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

ABSENT = object()
IDENTITIES = ("name", "api_key")
MESSAGES = ("error_message", "acknowledge_error_message")
WORDS, OWN_SETTING, EACH_QUESTION, REFUSED = "words", "own setting", "each question", "refused"
NAMED_RECORD = "named record"
"""The general kinds; `differences.GENERAL` says why."""
OWN_SETTINGS = (
    "confluent.key.schema.validation",
    "confluent.key.subject.name.strategy",
    "confluent.value.schema.validation",
    "confluent.value.subject.name.strategy",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "flush.mode",
    "share.order",
    "strandline.audit.chain",
    "strandline.delay.enable",
    "strandline.delay.max.ms",
    "strandline.lag.objectives",
    "strandline.object.ack",
    "strandline.owner",
    "strandline.remote.origin",
    "strandline.remote.recall",
    "strandline.retention.lock.ms",
    "strandline.schema.validation",
    "strandline.share.backoff.max.ms",
    "strandline.share.backoff.ms",
    "strandline.storage",
    "strandline.validate.records",
)
SAID_CHARACTERS_MAX = 100


class Unlike(NamedTuple):
    ours: str
    theirs: str
    general: frozenset[str]

    @property
    def differs(self) -> bool:
        return self.ours != self.theirs


def unlike(ours: Any, theirs: Any) -> Unlike:
    """What we say and what they say, where that is not the same; both empty if all is."""
    search = _Search()
    search.compare("", ours, theirs)
    # Where codes differ the rest follows from them.
    telling = [pair for pair in search.pairs if pair[0] == "error_code" or _codes(pair[1:])] or search.pairs
    ours_said, theirs_said = (_summary((pair[0], pair[side]) for pair in telling) for side in (1, 2))
    if ours_said == theirs_said:
        ours_said, theirs_said = (_full((pair[0], pair[side]) for pair in search.pairs) for side in (1, 2))
    return Unlike(ours_said, theirs_said, frozenset(search.general))


class _Search:
    def __init__(self) -> None:
        self.pairs: list[tuple[str, Any, Any]] = []
        self.general: set[str] = set()

    def compare(self, name: str, ours: Any, theirs: Any) -> None:
        if ours is theirs or (ours == theirs and ours is not ABSENT):
            return
        if (kind := general_kind(name, ours, theirs)) is not None:
            self.general.add(kind)
            return
        match ours, theirs:
            case dict(), dict():
                for key in sorted(ours.keys() | theirs.keys()):
                    self.compare(key, ours.get(key, ABSENT), theirs.get(key, ABSENT))
            case list(), list():
                self._compare_lists(name, ours, theirs)
            case _:
                self.pairs.append((name, ours, theirs))

    def _compare_lists(self, name: str, ours: list[Any], theirs: list[Any]) -> None:
        once = _without_doubles(ours)
        if len(ours) > len(theirs) == len(once):
            self.general.add(EACH_QUESTION)
            ours = once
        our, their = _by_identity(ours), _by_identity(theirs)
        if our and their:
            for key in sorted(our.keys() | their.keys()):
                self.compare(f"{name} {key}", our.get(key, ABSENT), their.get(key, ABSENT))
        elif len(ours) == len(theirs):
            for ours_each, theirs_each in zip(ours, theirs, strict=True):
                self.compare(name, ours_each, theirs_each)
        else:
            self.pairs.append((name, ours, theirs))


def general_kind(name: str, ours: Any, theirs: Any) -> str | None:
    if (
        name in ("error_message", "acknowledge_error_message")
        and ours == "a text"
        and (theirs is None or theirs is ABSENT)
    ):
        return WORDS
    if name == "log_start_offset" and ours is ABSENT and isinstance(theirs, int):
        return REFUSED
    if name == "record_errors" and theirs is ABSENT and len(ours) == 1:
        return NAMED_RECORD
    if theirs is ABSENT and name in [f"configs {setting}" for setting in OWN_SETTINGS]:
        return OWN_SETTING
    return None


def _without_doubles(items: list[Any]) -> list[Any]:
    once: list[Any] = []
    for item in items:
        if item not in once:
            once.append(item)
    return once


def _by_identity(items: list[Any]) -> dict[str, Any] | None:
    """The items by what they are about, where each is about something else."""
    for name in IDENTITIES:
        found = {str(item[name]): item for item in items if isinstance(item, dict) and item.get(name) is not None}
        if len(found) == len(items):
            return found
    return None


def _full(values: Iterable[tuple[str, Any]]) -> str:
    return "; ".join(f"{name} {_short(value)}" for name, value in values)


def _summary(values: Iterable[tuple[str, Any]]) -> str:
    text = "; ".join(dict.fromkeys(_said(name, value) for name, value in values))
    return text if len(text) <= SAID_CHARACTERS_MAX else text[: SAID_CHARACTERS_MAX - 3] + "..."


def _said(name: str, value: Any) -> str:
    if value is ABSENT:
        return "ok" if name == "error_code" else f"no {name}"
    if isinstance(value, dict | list) and (codes := list(dict.fromkeys(_codes(value)))):
        return ", ".join(codes)
    text = _short(value)
    return text if name in ("", "error_code") else f"{name} {text}"


def _codes(value: Any) -> list[str]:
    match value:
        case dict():
            return [code for key, each in value.items() for code in ([each] if key == "error_code" else _codes(each))]
        case list() | tuple():
            return [code for each in value for code in _codes(each)]
    return []


def _short(value: Any) -> str:
    match value:
        case str():
            return value
        case _ if value is ABSENT:
            return "absent"
        case [str(alone)]:
            return alone
        case dict():
            return "{" + ", ".join(f"{key}: {_short(each)}" for key, each in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(_short(each) for each in value) + "]"
        case None:
            return "null"
    return str(value)
