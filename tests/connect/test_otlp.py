"""OtlpSource with real requests, in Protobuf and JSON, and the values that they become."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import http.client
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.connect.driving import Store, batches_of, commit, opened

from strandline.connect.sources.bodies import BodyInvalid
from strandline.connect.sources.otlp import OtlpSource
from strandline.connect.sources.otlp_records import parse_signal

PROTOBUF = "application/x-protobuf"
TRACE_ID = "5b8efff798038103d269b633813fc60c"
SPAN_ID = "eee19b7ec3c1b174"
RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
SCOPE = {"name": "lib", "version": "1", "attributes": [{"key": "a", "value": {"intValue": "7"}}]}
LOG = {
    "timeUnixNano": "1544712660300000001",
    "severityNumber": 10,
    "severityText": "Info",
    "traceId": TRACE_ID,
    "spanId": SPAN_ID,
    "body": {"kvlistValue": {"values": [{"key": "text", "value": {"stringValue": "Zoë"}}]}},
    "attributes": [
        {"key": "list", "value": {"arrayValue": {"values": [{"boolValue": True}, {"doubleValue": "NaN"}, {}]}}},
        {"key": "bytes", "value": {"bytesValue": "AAE="}},
    ],
}


FIELDS = [*LOG, "resourceLogs", "scopeLogs", "logRecords", "key", "value", "stringValue", "arrayValue", "values"]


def logs(*records: Any) -> dict[str, Any]:
    return {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"scope": SCOPE, "logRecords": list(records)}]}]}


def metrics(*found: Any) -> dict[str, Any]:
    return {"resourceMetrics": [{"resource": RESOURCE, "scopeMetrics": [{"scope": SCOPE, "metrics": list(found)}]}]}


def spans(*found: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"scope": SCOPE, "spans": list(found)}]}]}


def protobuf(request: Any, value: dict[str, Any]) -> bytes:
    """Return a request in Protobuf; ids are given in hex."""
    text = json.dumps(value)
    for hexadecimal in (TRACE_ID, SPAN_ID):
        text = text.replace(hexadecimal, base64.b64encode(bytes.fromhex(hexadecimal)).decode())
    return bytes(json_format.Parse(text, request).SerializeToString())


def source(**settings: str) -> OtlpSource:
    given = {"listen": "127.0.0.1:0"} | {name.replace("_", "."): value for name, value in settings.items()}
    assert OtlpSource.Config.errors_of(given) == {}
    return OtlpSource(OtlpSource.Config(given))


def post(port: int, path: str, body: bytes, kind: str, **headers: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = {"Content-Type": kind} | {name.replace("_", "-"): each for name, each in headers.items()}
        connection.request("POST", path, body, sent)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def test_protobuf_and_json_become_the_same_values() -> None:
    by_json = parse_signal("logs", json.dumps(logs(LOG)).encode(), is_json=True)
    by_protobuf = parse_signal("logs", protobuf(ExportLogsServiceRequest(), logs(LOG)), is_json=False)
    assert by_json == by_protobuf
    (value,) = by_json
    assert value["resource"]["attributes"] == {"service.name": "shop"}
    assert (value["scope"]["name"], value["scope"]["attributes"]) == ("lib", {"a": 7})
    assert (value["trace_id"], value["span_id"]) == (TRACE_ID, SPAN_ID)
    assert (value["time_unix_nano"], value["severity_number"]) == (1544712660300000001, 10)
    assert value["body"] == {"text": "Zoë"}
    assert value["attributes"] == {"list": [True, "NaN", None], "bytes": "AAE="}
    json.dumps(value, allow_nan=False)


def test_each_data_point_is_a_value_of_its_own() -> None:
    found = metrics(
        {
            "name": "requests",
            "unit": "1",
            "sum": {
                "aggregationTemporality": 2,
                "isMonotonic": True,
                "dataPoints": [{"asInt": "0", "timeUnixNano": "5"}, {"asDouble": 1.5, "timeUnixNano": "6"}],
            },
        },
        {"name": "up", "gauge": {"dataPoints": [{"asDouble": "Infinity"}]}},
        {
            "name": "took",
            "histogram": {
                "dataPoints": [{"count": "2", "sum": 3.0, "bucketCounts": ["1", "1"], "explicitBounds": [1.0]}],
            },
        },
        {
            "name": "wide",
            "exponentialHistogram": {"dataPoints": [{"scale": 1, "positive": {"offset": 1, "bucketCounts": ["4"]}}]},
        },
        {"name": "old", "summary": {"dataPoints": [{"quantileValues": [{"quantile": 0.5, "value": 2.0}]}]}},
        {"name": "nothing"},
    )
    points = parse_signal("metrics", json.dumps(found).encode(), is_json=True)
    assert points == parse_signal("metrics", protobuf(ExportMetricsServiceRequest(), found), is_json=False)
    assert [(each["name"], each["type"], each.get("value")) for each in points] == [
        ("requests", "sum", 0),
        ("requests", "sum", 1.5),
        ("up", "gauge", "Infinity"),
        ("took", "histogram", None),
        ("wide", "exponential_histogram", None),
        ("old", "summary", None),
    ]
    assert points[0]["is_monotonic"] is True
    assert points[0]["aggregation_temporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
    assert (points[3]["bucket_counts"], points[3]["explicit_bounds"]) == ([1, 1], [1.0])
    assert points[4]["positive"] == {"offset": 1, "bucket_counts": [4]}
    assert points[5]["quantile_values"] == [{"quantile": 0.5, "value": 2.0}]


def test_spans_have_their_events_links_and_status() -> None:
    found = spans(
        {
            "traceId": TRACE_ID,
            "spanId": SPAN_ID,
            "name": "GET",
            "kind": 2,
            "events": [{"name": "e", "attributes": [{"key": "k", "value": {"intValue": 1}}]}],
            "links": [{"traceId": TRACE_ID, "spanId": SPAN_ID}],
            "status": {"code": 2, "message": "bad"},
        }
    )
    (span,) = parse_signal("traces", json.dumps(found).encode(), is_json=True)
    assert [span] == parse_signal("traces", protobuf(ExportTraceServiceRequest(), found), is_json=False)
    assert (span["kind"], span["parent_span_id"], span["status"]["code"]) == (
        "SPAN_KIND_SERVER",
        "",
        "STATUS_CODE_ERROR",
    )
    assert span["events"][0]["attributes"] == {"k": 1}
    assert span["links"][0]["trace_id"] == TRACE_ID


@pytest.mark.parametrize(
    "body",
    [b"{]", b"[]", b'{"resourceLogs": 5}', b"\xff", b'{"a":' * 5000, json.dumps(logs({"traceId": "zz"})).encode()],
)
def test_json_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(BodyInvalid):
        parse_signal("logs", body, is_json=True)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)


@given(ANYTHING, ANYTHING)
def test_json_of_any_form_is_read_or_refused(log: Any, whole: Any) -> None:
    for value in (logs(log), whole):
        with contextlib.suppress(BodyInvalid):
            for each in parse_signal("logs", json.dumps(value).encode(), is_json=True):
                json.dumps(each, allow_nan=False)


@given(st.binary(max_size=60))
def test_protobuf_of_any_form_is_read_or_refused(body: bytes) -> None:
    for signal in ("logs", "metrics", "traces"):
        with contextlib.suppress(BodyInvalid):
            for each in parse_signal(signal, body, is_json=False):
                json.dumps(each, allow_nan=False)


def test_fields_of_a_later_version_are_ignored_and_broken_protobuf_is_refused() -> None:
    assert parse_signal("logs", b'{"resourceLogs": [], "laterField": 1}', is_json=True) == []
    with pytest.raises(BodyInvalid):
        parse_signal("logs", b"\x0a\xff", is_json=False)


async def test_signals_go_to_their_topics_and_are_answered_after_the_commit() -> None:
    store = Store()
    async with opened(source(topic_metrics="points", bearer_token="word")) as otlp:
        assert isinstance(otlp, OtlpSource)
        batches = batches_of(otlp, store)

        async def send(path: str, body: bytes, kind: str, **headers: str) -> tuple[int, str, bytes]:
            sent = {"Authorization": "Bearer word"} | headers
            return await asyncio.to_thread(post, otlp.port, path, body, kind, **sent)

        reading = asyncio.ensure_future(anext(batches))
        body = protobuf(ExportLogsServiceRequest(), logs(LOG, {"body": {"stringValue": "two"}}))
        answer = asyncio.create_task(send("/v1/logs", gzip.compress(body), PROTOBUF, Content_Encoding="gzip"))
        batch = await reading
        assert not answer.done()
        await commit(otlp, store, batch)
        status, kind, got = await answer
        assert (status, kind) == (200, PROTOBUF)
        assert not ExportLogsServiceResponse.FromString(got).HasField("partial_success")

        async def serve() -> None:
            async for batch in batches:
                await commit(otlp, store, batch)

        serving = asyncio.create_task(serve())
        points = json.dumps(metrics({"name": "up", "gauge": {"dataPoints": [{"asInt": 1}]}})).encode()
        assert await send("/v1/metrics", points, "application/json") == (200, "application/json", b"{}")
        traces = json.dumps(spans({"traceId": TRACE_ID, "name": "s"})).encode()
        assert (await send("/v1/traces", traces, "application/json; charset=utf-8"))[0] == 200
        assert (await send("/v1/logs", b"{}", "application/json"))[0] == 200
        status, kind, got = await send("/v1/logs", b"{]", "application/json")
        assert (status, json.loads(got)["code"]) == (400, 3)
        status, _, got = await send("/v1/logs", b"\xff" * 10, PROTOBUF)
        assert (status, got[:2]) == (400, b"\x08\x03")
        assert (await send("/v1/logs", b"x", "text/plain"))[0] == 415
        assert (await send("/v1/profiles", b"", PROTOBUF))[0] == 404
        assert (await send("/v1/logs", b"", PROTOBUF, Authorization="Bearer other"))[0] == 401
        serving.cancel()
    assert [(each.topic, each.key) for each in store.records] == [
        ("otlp_logs", None),
        ("otlp_logs", None),
        ("points", "up"),
        ("otlp_spans", TRACE_ID),
    ]


async def test_behind_exporters_are_asked_to_try_again() -> None:
    async with opened(source(answer_timeout_ms="50", topic_traces="")) as otlp:
        assert isinstance(otlp, OtlpSource)
        body = json.dumps(logs(LOG)).encode()
        status, _, got = await asyncio.to_thread(post, otlp.port, "/v1/logs", body, "application/json")
        assert (status, json.loads(got)["code"]) == (503, 14)
        assert (await asyncio.to_thread(post, otlp.port, "/v1/traces", b"", PROTOBUF))[0] == 404
