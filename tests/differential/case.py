"""A case: a name, the API and version that it is about, and what is said to the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tests.differential.talk import Talk
from tests.differential.words import message_of, request_class, versions_of

from strandline.codec.message_codec import encode
from strandline.codec.messages.index import INDEX
from strandline.errors import UnsupportedVersion

Script = Callable[[Talk], None]
FRAMES = -1
"""Stands for the API key of cases that are about no API in particular."""


class Case(NamedTuple):
    name: str
    api_key: int
    version: int
    script: Script


def api_name(api_key: int) -> str:
    return INDEX["request"][api_key][1].removesuffix("Request")


def case(api_key: int, version: int, what: str, script: Script) -> Case:
    return Case(f"{api_name(api_key)} {version}: {what}", api_key, version, script)


def ask(api_key: int, version: int, what: str, **fields: Any) -> Case:
    return case(api_key, version, what, lambda talk: talk.ask(api_key, version, **fields))


def each(api_key: int, what: str, versions: Iterable[int] | None = None, **fields: Any) -> Iterator[Case]:
    """The same question in every version that can carry it."""
    for version in versions_of(api_key) if versions is None else versions:
        if carries(api_key, version, fields):
            yield ask(api_key, version, what, **fields)


def newest(api_key: int, questions: dict[str, dict[str, Any]], version: int | None = None) -> Iterator[Case]:
    """Questions by name, in one version, the newest unless told."""
    chosen = versions_of(api_key)[-1] if version is None else version
    for what, fields in questions.items():
        yield ask(api_key, chosen, what, **fields)


def ends(api_key: int, questions: dict[str, dict[str, Any]]) -> Iterator[Case]:
    """Questions by name, in the oldest and the newest version that can carry them."""
    for what, fields in questions.items():
        able = [version for version in versions_of(api_key) if carries(api_key, version, fields)]
        assert able, f"{api_name(api_key)}: no version can carry {what}"
        for version in sorted({able[0], able[-1]}):
            yield ask(api_key, version, what, **fields)


def carries(api_key: int, version: int, fields: dict[str, Any]) -> bool:
    try:
        encode(message_of(request_class(api_key), fields), version)
    except UnsupportedVersion:
        return False
    return True
