"""Requests of OpenTelemetry's protocol (OTLP) as plain values: one for each log record, data point and span.

Fields keep their names in OTLP's definition. Attributes are objects, ids are hexadecimal, numbers without a finite
value are the texts of JSON's mapping of Protobuf (`NaN`, `Infinity`).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from strandline.connect.sources.bodies import BodyInvalid, json_of

SIGNALS: Final[dict[str, tuple[type[Message], str, str]]] = {
    "logs": (ExportLogsServiceRequest, "resource_logs", "scope_logs"),
    "metrics": (ExportMetricsServiceRequest, "resource_metrics", "scope_metrics"),
    "traces": (ExportTraceServiceRequest, "resource_spans", "scope_spans"),
}
"""The request of a signal, and the fields of its two levels."""
_IDS: Final = ("trace_id", "span_id", "parent_span_id")
_HEX: Final = re.compile(r"[0-9a-f]*", re.ASCII)

ShowId = Callable[[bytes], str]


def parse_signal(signal: str, body: bytes, *, is_json: bool) -> list[dict[str, Any]]:
    """Return the values of a request. Raise BodyInvalid if it is none."""
    made = SIGNALS[signal][0]()
    try:
        if is_json:
            value = json_of(body)
            if not isinstance(value, dict):
                raise BodyInvalid("the body is no JSON object")
            json_format.ParseDict(value, made, ignore_unknown_fields=True)
        else:
            made.ParseFromString(body)
        return list(_values(signal, made, _hex_of_json if is_json else bytes.hex))
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise BodyInvalid(f"the body is no request of OTLP {signal}: {error}") from None


def _hex_of_json(id: bytes) -> str:
    """Return an id as the JSON had it: OTLP writes hex there, which the parser took for base64."""
    text = base64.b64encode(id).decode("ascii").lower()
    if not _HEX.fullmatch(text):
        raise BodyInvalid(f"the id {text} is not hexadecimal")
    return text


def _values(signal: str, request: Message, show_id: ShowId) -> Iterator[dict[str, Any]]:
    _, resources, scopes = SIGNALS[signal]
    for of_resource in getattr(request, resources):
        resource = _plain(of_resource.resource, show_id)
        for of_scope in getattr(of_resource, scopes):
            context = {
                "resource": resource,
                "resource_schema_url": of_resource.schema_url,
                "scope": _plain(of_scope.scope, show_id),
                "scope_schema_url": of_scope.schema_url,
            }
            if signal == "metrics":
                for metric in of_scope.metrics:
                    yield from (each | context for each in _points(metric, show_id))
            else:
                found = of_scope.log_records if signal == "logs" else of_scope.spans
                yield from (_plain(each, show_id) | context for each in found)


def _points(metric: Any, show_id: ShowId) -> Iterator[dict[str, Any]]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    whole = _plain(metric, show_id, without=(kind,))
    points = getattr(metric, kind)
    shared = whole | {"type": kind} | _plain(points, show_id, without=("data_points",))
    yield from (shared | _plain(point, show_id) for point in points.data_points)


def _plain(message: Any, show_id: ShowId, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a message as an object. Fields that are not set have their default, unless they can be absent."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in without or (field.has_presence and not message.HasField(field.name)):
            continue
        value = getattr(message, field.name)
        kind = field.message_type.name if field.message_type is not None else ""
        if kind == "KeyValue":
            found[field.name] = _attributes(value)
        elif kind == "AnyValue":
            found[field.name] = _any(value)
        elif kind:
            is_one = field.has_presence
            found[field.name] = _plain(value, show_id) if is_one else [_plain(each, show_id) for each in value]
        elif field.name in ("as_int", "as_double"):
            found["value"] = _number(value)
        elif field.name in _IDS:
            found[field.name] = show_id(value)
        elif field.enum_type is not None and field.name != "severity_number":
            found[field.name] = _enum(field, value)
        elif isinstance(value, int | str | float):
            found[field.name] = _number(value)
        else:
            found[field.name] = [_number(each) for each in value]
    return found


def _enum(field: FieldDescriptor, value: int) -> str | int:
    """Return the name of an enum's value; its number, if a later version of OTLP has it."""
    known = field.enum_type.values_by_number.get(value)
    return value if known is None else str(known.name)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _any(pair.value) for pair in pairs}


def _any(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_any(each) for each in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode("ascii")
        case None:
            return None
        case kind:
            return _number(getattr(value, kind))


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
