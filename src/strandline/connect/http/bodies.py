"""The bodies of requests. What Apache answers with 500, because its JSON library or a null stops it, is 400 here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from strandline.connect.herder.interface import RequestFailed, TargetState
from strandline.connect.records import SourcePosition

Given = dict[str, str | None]

_STATES: Final[dict[str, TargetState]] = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
_CREATE_FIELDS: Final = ("name", "config", "initial_state")
_POSITION_FIELDS: Final = ("partition", "offset")


def json_object(data: bytes, *, is_text: bool = False) -> dict[str, Any]:
    """Return the object of a body. Numbers are texts as they were written if `is_text`. Raise RequestFailed."""
    if not data.strip():
        raise RequestFailed(400, "The request has no body, and needs a JSON object")
    try:
        whole, broken = (str, str) if is_text else (int, float)
        found = json.loads(data, parse_constant=_no_number, parse_int=whole, parse_float=broken)
        str(found).encode()
    except UnicodeEncodeError:
        raise RequestFailed(400, "The body has half of a surrogate pair, which is no text") from None
    except (ValueError, RecursionError) as error:
        raise RequestFailed(400, f"The body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestFailed(400, f"The body must be a JSON object, and is {_kind(found)}")
    return found


def config_of(given: Any, what: str = "The body") -> Given:
    """Return settings: texts, and None for null. Numbers and truth values become texts, as in Kafka Connect."""
    if not isinstance(given, Mapping):
        raise RequestFailed(400, f"{what} must be a JSON object with settings, and is {_kind(given)}")
    found: Given = {}
    for name, value in given.items():
        if isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif value is None or isinstance(value, str):
            found[name] = value
        else:
            raise RequestFailed(400, f"The value of {name} must be a text, and is {_kind(value)}")
    return found


def create_request(data: bytes) -> tuple[str, Given, TargetState]:
    """Return name, config and state of a new connector."""
    body = json_object(data, is_text=True)
    for each in body:
        if each not in _CREATE_FIELDS:
            raise RequestFailed(400, f'Unrecognized field "{each}": the known ones are {", ".join(_CREATE_FIELDS)}')
    name, state = body.get("name"), body.get("initial_state")
    if name is not None and not isinstance(name, str):
        raise RequestFailed(400, f"The name must be a text, and is {_kind(name)}")
    if state is not None and (not isinstance(state, str) or state.upper() not in _STATES):
        raise RequestFailed(400, f"The initial_state must be one of {', '.join(_STATES)}, and is {state}")
    if body.get("config") is None:
        raise RequestFailed(400, "The request has no config")
    config = config_of(body["config"], "The config")
    return (name or "").strip(), config, "STARTED" if state is None else _STATES[state.upper()]


def positions_of(data: bytes) -> list[SourcePosition]:
    """Return the positions of a request that alters offsets."""
    body = json_object(data)
    given = body.get("offsets")
    if any(each != "offsets" for each in body) or not isinstance(given, list | None):
        raise RequestFailed(400, 'The body must be {"offsets": [{"partition": {...}, "offset": {...}}, ...]}')
    if not given:
        raise RequestFailed(400, "Partitions / offsets need to be provided for an alter offsets request")
    return [_position(each) for each in given]


def _position(given: Any) -> SourcePosition:
    if not isinstance(given, dict) or any(each not in _POSITION_FIELDS for each in given):
        raise RequestFailed(400, "Each of the offsets must be an object with the fields partition and offset")
    partition, offset = (given.get(each) for each in _POSITION_FIELDS)
    if partition is None:
        raise RequestFailed(400, "Partition objects cannot be null")
    for name, value in zip(_POSITION_FIELDS, (partition, offset), strict=True):
        if not isinstance(value, dict | None):
            raise RequestFailed(400, f"The {name} must be a JSON object, and is {_kind(value)}")
    return cast("SourcePosition", (partition, offset))


def level_of(data: bytes) -> str:
    """Return the level that a logger is to have."""
    level = config_of(json_object(data, is_text=True)).get("level")
    if level is None:
        raise RequestFailed(400, "Desired 'level' parameter was not specified in request.")
    return level


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a text or number"
    return "a number"
