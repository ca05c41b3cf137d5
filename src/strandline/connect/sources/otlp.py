"""OtlpSource: receives logs, metrics and traces of OpenTelemetry over HTTP (OTLP/HTTP, Protobuf and JSON)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from strandline.connect import schema
from strandline.connect.config import option
from strandline.connect.records import Batch, SourceOffsets, SourcePosition, SourceRecord
from strandline.connect.source import Source
from strandline.connect.sources.bodies import BodyInvalid, BodyTooLarge
from strandline.connect.sources.held_requests import HeldRequest, HeldRequests, WriteOutcome
from strandline.connect.sources.http_receiver import (
    HttpAnswer,
    HttpReceiver,
    HttpReceiverConfig,
    HttpRequest,
    refused,
)
from strandline.connect.sources.listening import check_address
from strandline.connect.sources.otlp_records import parse_signal

PARTITION: Final = {"otlp": "requests"}
JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"
_INVALID_ARGUMENT: Final = 3
_UNAVAILABLE: Final = 14
"""Codes of gRPC, which OTLP has in the bodies of its errors."""


class OtlpConfig(HttpReceiverConfig):
    """Settings of OtlpSource."""

    listen: str = option(
        "Address and port to listen on; port 0 takes a free one.", default="127.0.0.1:4318", check=check_address
    )
    topic_logs: str = option("Topic of log records; empty refuses them.", default="otlp_logs", importance="HIGH")
    topic_metrics: str = option("Topic of data points; empty refuses them.", default="otlp_metrics", importance="HIGH")
    topic_traces: str = option("Topic of spans; empty refuses them.", default="otlp_spans", importance="HIGH")

    def topic_of(self, path: str) -> tuple[str, str]:
        """Return the signal of a path, and its topic; empty texts if it is not received."""
        topics = {"logs": self.topic_logs, "metrics": self.topic_metrics, "traces": self.topic_traces}
        signal = path.removeprefix("/v1/")
        return (signal, topics[signal]) if path == f"/v1/{signal}" and topics.get(signal) else ("", "")


class OtlpSource(Source):
    """Receives what exporters of OpenTelemetry send. At least once: an exporter that tries again is not recognized."""

    exactly_once = False
    Config = OtlpConfig
    config: OtlpConfig

    async def open(self) -> None:
        self._pending = HeldRequests(self.config.requests_max)
        self._receiver = HttpReceiver(self.config, self._admit, self._handle)
        await self._receiver.open()

    @property
    def port(self) -> int:
        """The port that the source listens on."""
        return self._receiver.port

    @classmethod
    def only_partition(cls, config: Any) -> Mapping[str, str]:
        return PARTITION

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        sequence = int((offsets.get(PARTITION) or {}).get("sequence", 0))
        self._pending.begin(sequence)
        while True:
            requests = await self._pending.take(self.config.batch_max_records)
            sequence += 1
            for request in requests:
                self._pending.expect(request, sequence)
            yield Batch([each for request in requests for each in request.records], PARTITION, {"sequence": sequence})

    async def committed(self, positions: Sequence[SourcePosition]) -> None:
        self._pending.committed(positions)

    async def close(self) -> None:
        if hasattr(self, "_receiver"):
            self._pending.stop()
            await self._receiver.close()

    def _admit(self, request: HttpRequest) -> HttpAnswer | None:
        if not self.config.topic_of(request.path)[0]:
            return refused(404, "nothing is received at this path")
        if request.method != "POST":
            return refused(405, "signals are posted", ("Allow", "POST"))
        if _kind_of(request) not in (JSON, PROTOBUF):
            return refused(415, f"the content type is {PROTOBUF} or {JSON}")
        return None

    async def _handle(self, request: HttpRequest) -> HttpAnswer:
        signal, topic = self.config.topic_of(request.path)
        kind = _kind_of(request)
        try:
            # In a thread, because a request of some megabytes takes a good part of a second.
            records = await asyncio.to_thread(_records, signal, topic, request)
        except BodyInvalid as error:
            return _failed(413 if isinstance(error, BodyTooLarge) else 400, kind, _INVALID_ARGUMENT, str(error))
        if records:
            outcome = await self._pending.submit(HeldRequest(records), self.config.answer_timeout_ms / 1000)
            if outcome is not WriteOutcome.COMMITTED:
                return _failed(503, kind, _UNAVAILABLE, outcome.value)
        # An empty response: nothing was refused.
        return HttpAnswer(200, b"{}" if kind == JSON else b"", kind)


def _kind_of(request: HttpRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _records(signal: str, topic: str, request: HttpRequest) -> list[SourceRecord]:
    values = parse_signal(signal, request.unpacked(), is_json=_kind_of(request) == JSON)
    return [_record(signal, topic, value) for value in values]


def _record(signal: str, topic: str, value: Mapping[str, Any]) -> SourceRecord:
    """Return a record. Spans have their trace as the key, data points the name of their metric.

    Its timestamp is that of the producer: a sender with a wrong clock must not have the broker refuse the batch.
    """
    key = {"traces": value.get("trace_id"), "metrics": value.get("name")}.get(signal) or None
    return SourceRecord(topic=topic, value=value, key=key, key_schema=None if key is None else schema.STRING)


def _failed(status: int, kind: str, code: int, message: str) -> HttpAnswer:
    """Return an error with the body that OTLP asks for: google.rpc.Status in the encoding of the request."""
    headers = (("Retry-After", "1"),) if status == 503 else ()
    if kind == JSON:
        return HttpAnswer(status, json.dumps({"code": code, "message": message}).encode(), kind, headers)
    # One byte holds the length of a text of at most 127; a character that the cut has broken is left out.
    text = message.encode()[:127].decode("utf-8", "ignore").encode()
    return HttpAnswer(status, bytes([0x08, code, 0x12, len(text)]) + text, kind, headers)
