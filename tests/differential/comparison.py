"""Where two outcomes differ, in words: the fields that differ, with the value on either side."""

from __future__ import annotations

from typing import Any

ABSENT = object()
IDENTITIES = ("name", "api_key")


def unlike(ours: Any, theirs: Any) -> tuple[str, str]:
    """What we say and what they say, where that is not the same; both empty if all is."""
    pairs: list[tuple[str, Any, Any]] = []
    _collect("", ours, theirs, pairs)
    return "; ".join(_said(name, ours) for name, ours, _ in pairs), "; ".join(_said(name, it) for name, _, it in pairs)


def _collect(name: str, ours: Any, theirs: Any, pairs: list[tuple[str, Any, Any]]) -> None:
    if ours == theirs and ours is not ABSENT:
        return
    match ours, theirs:
        case dict(), dict():
            for key in sorted(ours.keys() | theirs.keys()):
                _collect(key, ours.get(key, ABSENT), theirs.get(key, ABSENT), pairs)
        case list(), list() if (our := _by_identity(ours)) and (their := _by_identity(theirs)):
            for key in sorted(our.keys() | their.keys()):
                _collect(f"{name} {key}", our.get(key, ABSENT), their.get(key, ABSENT), pairs)
        case list(), list() if len(ours) == len(theirs):
            for our, their in zip(ours, theirs, strict=True):
                _collect(name, our, their, pairs)
        case _:
            pairs.append((name, ours, theirs))


def _by_identity(items: list[Any]) -> dict[str, Any] | None:
    """The items by what they are about, where each is about something else."""
    for name in IDENTITIES:
        found = {str(item[name]): item for item in items if isinstance(item, dict) and name in item}
        if len(found) == len(items):
            return found
    return None


def _said(name: str, value: Any) -> str:
    if value is ABSENT:
        return "ok" if name == "error_code" else f"no {name}"
    text = _short(value)
    return text if name in ("", "error_code") else f"{name} {text}"


def _short(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_short(each)}" for key, each in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(_short(each) for each in value) + "]"
        case None:
            return "null"
    return str(value)
