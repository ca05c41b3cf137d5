"""Conditions of `consume --where`, compiled to functions of a record (pure).

A condition is FIELD OPERATOR TEXT, with or without blanks around the operator. All conditions of a command must hold:

    key=o-1                  the key is exactly this (== is the same; != is the opposite)
    value.amount>100         a place inside a JSON document: numbers are compared as numbers, text as text
    value.items[0].sku='x-1' quotes are optional; 7, true and null are compared as JSON unless they are quoted
    headers.retries>=3       a header of this name is like this (`header.` is the same)
    partition=0, offset<500, timestamp>=10m-ago
    value*=paid              the value contains this
    value~=^o-[0-9]+$        a regular expression is found in it (!~: is not found)

Keys, values and headers are bytes, compared as UTF-8. A value that is not JSON has no places. A missing place or header
satisfies only != and !~.
"""

from __future__ import annotations

import json
import operator as operators
import re
from collections.abc import Callable
from typing import Any

from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.records.record import ReadRecord

Filter = Callable[[ReadRecord], bool]

_CONDITION = re.compile(
    r"\s*(?P<field>key|value|headers?|partition|offset|timestamp)(?P<path>[.\[](?:\"[^\"]*\"|[^\"])*?)?"
    r"\s*(?P<operator>==|!=|\*=|~=|!~|<=|>=|=|<|>)\s*(?P<text>.*)",
    re.DOTALL,
)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>-?\d+)\]|\[\"(?P<quoted>[^\"]*)\"\]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.DOTALL)
_SECOND = re.compile(r"(?:\band\b|\bor\b|&&|\|\|)\s*(?:key|value|headers?|partition|offset|timestamp)\b", re.IGNORECASE)
_ABSENT = object()
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


CompileRegex = Callable[[bytes], Any]
"""Returns what has `search`, or raises `re.error`. A service takes expressions of strangers, so it gives one of re2."""


def compile_filter(condition: str, *, now_ms: int = 0, compile_regex: CompileRegex = re.compile) -> Filter:
    """Return the condition as a function; ValueError says what is wrong with it."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise ValueError(
            f"{condition!r} is no condition: say key, value, value.a.b[0], headers.NAME, partition, offset or "
            "timestamp, then = != < <= > >= *= (contains) ~= (regex) or !~ (no match), then text"
        )
    field, path = match["field"], match["path"] or ""
    operator, text = match["operator"].replace("==", "="), match["text"]
    if operator in _COMPARISONS:
        text = text.rstrip()
        _check_text(condition, operator, text)
    if field in ("partition", "offset", "timestamp"):
        return _number_filter(condition, field, path, operator, text, now_ms)
    if field in ("header", "headers"):
        return _header_filter(condition, path, operator, text, compile_regex)
    if not path:
        holds = _test(operator, text, compile_regex)
        return lambda record: holds(record.key if field == "key" else record.value)
    steps = _steps(condition, path)
    holds_json = _json_test(operator, text, compile_regex)
    return lambda record: holds_json(_look_up(record.key if field == "key" else record.value, steps))


def compile_filters(
    conditions: list[str], grep: str | None = None, *, now_ms: int = 0, compile_regex: CompileRegex = re.compile
) -> Filter | None:
    """Return all conditions, and the pattern that key or value must show, as one function; None if there are none."""
    filters = [compile_filter(condition, now_ms=now_ms, compile_regex=compile_regex) for condition in conditions]
    if grep is not None:
        pattern = _regex(grep, compile_regex)
        filters.append(
            lambda record: any(part is not None and pattern.search(part) for part in (record.key, record.value))
        )
    if not filters:
        return None
    return lambda record: all(wanted(record) for wanted in filters)


def _check_text(condition: str, operator: str, text: str) -> None:
    """Refuse what was probably meant otherwise; quotes say that the text is meant as it is."""
    if text[:1] in ("=", "<", ">", "!", "~"):
        raise ValueError(
            f"{condition!r} has two operators: say one of = != < <= > >=, or quote the text that begins with {text[0]}"
        )
    if not text and operator not in ("=", "!="):
        raise ValueError(f"{condition!r} compares with nothing: say a number or text behind {operator}")
    if not _QUOTED.fullmatch(text) and _SECOND.search(text):
        raise ValueError(f"{condition!r} has two conditions: say --where for each of them, or quote the text")


def _number_filter(condition: str, field: str, path: str, operator: str, text: str, now_ms: int) -> Filter:
    if path or operator not in _COMPARISONS:
        raise ValueError(f"{condition!r}: {field} is a number: compare it with = != < <= > or >=")
    number = _number(text)
    if number is None and field == "timestamp":
        try:
            position = parse_position(_unquoted(text), now_ms=now_ms)
        except ValueError:
            position = None
        number = position.timestamp_ms if isinstance(position, TimePosition) else None
    if number is None:
        times = " (milliseconds), a time such as 2026-03-01T12:00:00Z, or 10m-ago" if field == "timestamp" else ""
        raise ValueError(f"{condition!r}: {text!r} is no number{times}")
    attribute = {"timestamp": "timestamp_ms"}.get(field, field)
    compare = _COMPARISONS[operator]
    return lambda record: compare(getattr(record, attribute), number)


def _header_filter(condition: str, path: str, operator: str, text: str, compile_regex: CompileRegex) -> Filter:
    name = path[1:] if path.startswith(".") else ""
    if not name:
        raise ValueError(f"{condition!r} names no header: say headers.NAME")
    # "Not" must mean that no header of this name is so, while a plain condition needs one that is.
    negated = operator.startswith("!")
    holds = _test({"!=": "=", "!~": "~="}.get(operator, operator), text, compile_regex)

    def wanted(record: ReadRecord) -> bool:
        return any(key == name and holds(value) for key, value in record.headers) != negated

    return wanted


def _test(operator: str, text: str, compile_regex: CompileRegex) -> Callable[[bytes | None], bool]:
    """Return a test of bytes: a key, a value or a header."""
    raw = _bytes(text)
    match operator:
        case "=" | "!=":
            equal = {raw, _bytes(_unquoted(text))}
            return lambda content: (content in equal) == (operator == "=")
        case "*=":
            return lambda content: content is not None and raw in content
        case "~=" | "!~":
            pattern = _regex(text, compile_regex)
            is_wanted = operator == "~="
            return lambda content: (content is not None and pattern.search(content) is not None) == is_wanted
    compare, number, wanted = _COMPARISONS[operator], _number(text), _bytes(_unquoted(text))
    if number is None:
        return lambda content: content is not None and compare(content, wanted)

    def is_so(content: bytes | None) -> bool:
        found = None if content is None else _number(content)
        return found is not None and compare(found, number)

    return is_so


def _json_test(operator: str, text: str, compile_regex: CompileRegex) -> Callable[[Any], bool]:
    """Return a test of what stands at a place of a JSON document."""
    if operator in ("=", "!="):
        return lambda found: _equals(found, text) == (operator == "=")
    if operator not in _COMPARISONS:
        holds = _test(operator, text, compile_regex)
        return lambda found: holds(None if found is _ABSENT or found is None else _text(found).encode())
    compare, number, wanted = _COMPARISONS[operator], _number(text), _unquoted(text)

    def is_so(found: Any) -> bool:
        if number is not None:
            return isinstance(found, int | float) and not isinstance(found, bool) and compare(found, number)
        return isinstance(found, str) and compare(found, wanted)

    return is_so


def _equals(found: Any, text: str) -> bool:
    if found is _ABSENT:
        return False
    if isinstance(found, str):
        # A string may be written bare or, where a shell makes no trouble, with its quotes.
        return found == _unquoted(text) or text in (found, json.dumps(found, ensure_ascii=False), json.dumps(found))
    try:
        wanted = json.loads(text)
    except ValueError:
        return False
    # Python thinks that True is 1.
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)


def _number(text: str | bytes) -> int | float | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _unquoted(text: str) -> str:
    return text[1:-1] if _QUOTED.fullmatch(text) else text


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _regex(text: str, compile_regex: CompileRegex) -> Any:
    try:
        return compile_regex(_bytes(text))
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


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
