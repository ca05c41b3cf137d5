"""Which records a reader wants to see, as a person says it (pure).

A condition is FIELD OPERATOR TEXT, and all conditions of a command must hold:

    key=o-1             the key is exactly this
    value*=paid         the value contains this
    value~=^o-[0-9]+$   a regular expression is found in it
    header.source!=web  the header is missing or something else (any header of that name counts)
    value.items[0].sku=x-1   a place inside a JSON document; 7, true and null are compared as JSON

Keys and values are bytes: text is compared as UTF-8, and JSON that is none has no places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from strandline.cli.records.record import ReadRecord

Filter = Callable[[ReadRecord], bool]

_CONDITION = re.compile(
    r"(?P<field>key|value|header)(?P<path>[.\[].*?)?(?P<operator>!=|\*=|~=|!~|=)(?P<text>.*)", re.DOTALL
)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>-?\d+)\]|\[\"(?P<quoted>[^\"]*)\"\]")
_ABSENT = object()


def compile_filter(condition: str) -> Filter:
    """The condition as a function; ValueError says what is wrong with it."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise ValueError(
            f"{condition!r} is no condition: say key, value, header.NAME or value.a.b[0], then = != *= (contains) "
            "~= (regex) or !~ (no match), then text"
        )
    field, path = match["field"], match["path"] or ""
    if field == "header":
        return _header_filter(condition, path, match["operator"], match["text"])
    holds = _test(match["operator"], match["text"])
    if not path:
        return lambda record: holds(record.key if field == "key" else record.value)
    steps = _steps(condition, path)
    holds_json = _json_test(match["operator"], match["text"])
    return lambda record: holds_json(_look_up(record.key if field == "key" else record.value, steps))


def compile_filters(conditions: list[str], grep: str | None = None) -> Filter | None:
    """All conditions together, and the pattern that key or value must show; None when everything is wanted."""
    filters = [compile_filter(condition) for condition in conditions]
    if grep is not None:
        pattern = _regex(grep)
        filters.append(
            lambda record: any(part is not None and pattern.search(part) for part in (record.key, record.value))
        )
    if not filters:
        return None
    return lambda record: all(wanted(record) for wanted in filters)


def _header_filter(condition: str, path: str, operator: str, text: str) -> Filter:
    name = path[1:] if path.startswith(".") else ""
    if not name:
        raise ValueError(f"{condition!r} names no header: say header.NAME")
    # "Not" must mean that no header of this name is so, while a plain condition needs one that is.
    negated = operator.startswith("!")
    holds = _test({"!=": "=", "!~": "~="}.get(operator, operator), text)

    def wanted(record: ReadRecord) -> bool:
        return any(key == name and holds(value) for key, value in record.headers) != negated

    return wanted


def _test(operator: str, text: str) -> Callable[[bytes | None], bool]:
    raw = text.encode(errors="surrogateescape")
    match operator:
        case "=":
            return lambda content: content == raw
        case "!=":
            return lambda content: content != raw
        case "*=":
            return lambda content: content is not None and raw in content
    pattern = _regex(text)
    if operator == "~=":
        return lambda content: content is not None and pattern.search(content) is not None
    return lambda content: content is None or pattern.search(content) is None


def _regex(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode(errors="surrogateescape"))
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def _json_test(operator: str, text: str) -> Callable[[Any], bool]:
    if operator in ("=", "!="):
        return lambda found: _equals(found, text) == (operator == "=")
    holds = _test(operator, text)
    return lambda found: holds(None if found is _ABSENT or found is None else _text(found).encode())


def _equals(found: Any, text: str) -> bool:
    if found is _ABSENT:
        return False
    if isinstance(found, str):
        # A string may be written bare or, where a shell makes no trouble, with its quotes.
        return text in (found, json.dumps(found, ensure_ascii=False), json.dumps(found))
    try:
        wanted = json.loads(text)
    except ValueError:
        return False
    # Python thinks that True is 1.
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)


def _text(found: Any) -> str:
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _steps(condition: str, path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(f'{condition!r}: {path[at:]!r} is no place in a document: say .name, [0] or ["name"]')
        steps.append(int(step["index"]) if step["index"] is not None else step["name"] or step["quoted"] or "")
        at = step.end()
    return steps


def _look_up(content: bytes | None, steps: list[str | int]) -> Any:
    try:
        found: Any = json.loads(content) if content is not None else _ABSENT
    except (ValueError, RecursionError):
        return _ABSENT
    for step in steps:
        if isinstance(step, int) and isinstance(found, list) and -len(found) <= step < len(found):
            found = found[step]
        elif isinstance(found, dict) and str(step) in found:
            found = found[str(step)]
        else:
            return _ABSENT
    return found
