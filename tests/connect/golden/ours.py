"""Runs our converters and transforms over a case, and compares with what Kafka's gave."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.connect.golden.cases import Case

from strandline.connect import (
    ConnectRecord,
    Header,
    InvalidConnectorConfig,
    RecordFailed,
    Schema,
    SinkRecord,
    SourceRecord,
)
from strandline.connect.config import text_of
from strandline.connect.convert.choosing import converter_class, converter_of
from strandline.connect.convert.java_dates import JavaDateFormat
from strandline.connect.transforms.chain import config_of, transform_chain

ENVELOPE: Final = converter_of("JsonConverter", {"replace.null.with.default": "false"}, is_key=False)
HEADERS: Final = converter_of("SimpleHeaderConverter", {}, is_key=False)


def ours(case: Case) -> dict[str, Any]:
    """Return what our code makes of a case, in the form of the recording."""
    try:
        return _run(case)
    except RecordFailed as error:
        return {"error": str(error)}
    except InvalidConnectorConfig as error:
        return {"config_error": str(error).replace("transforms.a.", "").replace("predicates.p.", "")}


def same(case: Case, expected: dict[str, Any], found: dict[str, Any]) -> bool:
    """Return whether two results are the same. Errors need not have the same words; those of configs do."""
    if "error" in expected:
        return "error" in found
    if case["kind"] == "options":
        # Kafka sets this one itself.
        expected = {name: each for name, each in expected.items() if name != "converter.type"}
    return bool(_comparable(expected) == _comparable(found))


def _comparable(result: Any) -> Any:
    """Return a result with JSON parsed where it has no schema: there the order of members is Java's hash order."""
    if isinstance(result, dict):
        return {name: _comparable(each) if name != "hex" else _comparable_hex(each) for name, each in result.items()}
    if isinstance(result, list):
        return [_comparable(each) for each in result]
    return _parsed(result) if isinstance(result, str) and result.startswith('{"schema":null') else result


def _comparable_hex(text: str | None) -> Any:
    if text is None:
        return None
    try:
        decoded = bytes.fromhex(text).decode()
        return text if decoded.startswith('{"schema":{') else _parsed(decoded)
    except ValueError:
        return text


def _parsed(text: str) -> Any:
    return json.loads(text)


def _value(envelope: Any) -> tuple[Schema | None, Any]:
    return (None, None) if envelope is None else ENVELOPE.to_connect("t", json.dumps(envelope).encode())


def _text(schema: Schema | None, value: Any) -> str | None:
    found = ENVELOPE.from_connect("t", schema, value)
    return None if found is None else found.decode()


def _run(case: Case) -> dict[str, Any]:
    match case["kind"]:
        case "write":
            converter = converter_of(case["converter"], case["config"], is_key=False)
            found = converter.from_connect("t", *_value(case["value"]))
            return {"hex": None if found is None else found.hex()}
        case "read":
            return {"text": _text(*_converter(case).to_connect("t", case["data"].encode()))}
        case "read_hex":
            return {"text": _text(*_converter(case).to_connect("t", bytes.fromhex(case["data"])))}
        case "write_header":
            header = HEADERS.from_connect("t", *_value(case["value"]))
            assert header is not None
            return {"text": header.decode()}
        case "read_header":
            return {"text": _text(*HEADERS.to_connect("t", case["data"].encode()))}
        case "format":
            return {"text": JavaDateFormat(case["pattern"]).format(case["ms"])}
        case "parse":
            return {"ms": JavaDateFormat(case["pattern"]).parse(case["data"])}
        case "options":
            return _options(case["type"])
    return _transformed(case)


def _converter(case: Case) -> Any:
    return converter_of(case["converter"], case["config"], is_key=False)


def _transformed(case: Case) -> dict[str, Any]:
    properties = {"transforms": "a", "transforms.a.type": case["type"]}
    properties |= {f"transforms.a.{name}": each for name, each in case["config"].items()}
    if "predicate" in case:
        properties |= {"predicates": "p", "predicates.p.type": case["predicate"], "transforms.a.predicate": "p"}
        properties |= {f"predicates.p.{name}": each for name, each in case["predicate_config"].items()}
    chain = transform_chain(properties)
    assert chain is not None
    changed = chain(_record(case["record"]))
    return {"dropped": True} if changed is None else _shown(changed)


def _record(given: dict[str, Any]) -> ConnectRecord:
    key_schema, key = _value(given.get("key"))
    value_schema, value = _value(given.get("value"))
    headers = []
    for name, envelope in given.get("headers", ()):
        schema, header = _value(envelope)
        headers.append(Header(name, header, schema))
    common: dict[str, Any] = {
        "topic": given["topic"],
        "key": key,
        "value": value,
        "key_schema": key_schema,
        "value_schema": value_schema,
        "partition": given.get("partition"),
        "timestamp_ms": given.get("timestamp"),
        "headers": headers,
    }
    return SinkRecord(**common, offset=given["offset"]) if "offset" in given else SourceRecord(**common)


def _shown(record: ConnectRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "key": _text(record.key_schema, record.key),
        "value": _text(record.value_schema, record.value),
        "headers": [[each.name, _text(each.schema, each.value)] for each in record.headers],
    }


def _options(name: str) -> dict[str, Any]:
    config = config_of(name) or converter_class(name).Config
    return {
        each.name: {
            "type": each.type,
            "importance": each.importance,
            "required": each.is_required,
            "default": None if each.is_required else text_of(each.default),
        }
        for each in config.options
    }
