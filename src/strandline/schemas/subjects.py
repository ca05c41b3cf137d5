"""Names of subjects, and the contexts that they are in.

    orders-value            in the default context, which is called `.`
    :.ctx:orders-value      in the context `.ctx`, which has ids of its own
    :.ctx:                  the context itself: its config and mode
    :*:orders               a prefix in all contexts

A context is part of the name of its subjects, and the topic `_schemas` knows no more of it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""Its config and mode hold for all contexts that have none."""
ALL_CONTEXTS: Final = ":*:"
SUBJECT_CHARACTERS_MAX: Final = 1000

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RESERVED: Final = ("__GLOBAL", "__EMPTY")


class SubjectName(NamedTuple):
    """A subject and its context."""

    context: str
    subject: str

    @property
    def text(self) -> str:
        return in_context(self.context, self.subject)


def split(name: str) -> SubjectName:
    """Return the context of a subject, and its name there."""
    if not name.startswith(":."):
        return SubjectName(DEFAULT_CONTEXT, name)
    context, _, subject = name[1:].partition(":")
    return SubjectName(context, subject)


def context_of(name: str) -> str:
    return split(name).context if name.startswith(":.") else DEFAULT_CONTEXT


def in_context(context: str, subject: str) -> str:
    """Return the name of a subject of a context; of the context itself if `subject` is empty."""
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def normal(name: str) -> str:
    """Return the one form of a name: `:.:s` is `s`, and `:.ctx` is `:.ctx:`."""
    return split(name).text


def relative_to(parent: str, name: str) -> str:
    """Return the full name of a subject that a schema of `parent` refers to: of the same context unless it says so."""
    if name.startswith(":."):
        return normal(name)
    return in_context(context_of(parent), name)


def context_name(text: str) -> str | None:
    """Return the context that a path names (`ctx`, `.ctx` or `:.ctx:`); None if it can not be one."""
    text = text.removeprefix(":").removesuffix(":")
    if ":" in text:
        return None
    return text if text.startswith(".") else f".{text}"


def is_valid(name: str, *, is_for_settings: bool = False) -> bool:
    """Say whether a name may be a subject, or with `is_for_settings` a subject or context that has settings."""
    context, subject = split(name)
    if len(name) > SUBJECT_CHARACTERS_MAX or any(
        ord(character) < 32 or 127 <= ord(character) < 160 for character in name
    ):
        return False
    if subject in _RESERVED:
        return False
    return is_for_settings or (bool(subject) and context != GLOBAL_CONTEXT)
