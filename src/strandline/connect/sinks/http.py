"""HttpSink: records as HTTP requests, one for each or one for a batch, in the order of their keys.

A receiver gets every record at least once. Each request has an `Idempotency-Key`, so a receiver that remembers these
keys has each record once.
"""

from __future__ import annotations

import hashlib
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote_from_bytes

from strandline.connect import config as settings
from strandline.connect.config import Password, option
from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.http_client import HttpClient, TargetAnswer, url_problem
from strandline.connect.sinks.plain_json import json_bytes, value_bytes
from strandline.connect.sinks.record_template import RecordTemplate, template_problem

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
WRITE_S_MAX: Final = 60.0
"""Time for one call of `write`. The worker polls its consumer in between, which would leave its group otherwise."""
_NOT_THE_RECORDS_FAULT: Final = frozenset({401, 403, 407})
_GONE: Final = frozenset({404, 410})
_CONTENT_TYPES: Final = {"json": "application/json", "ndjson": "application/x-ndjson"}
_FORBIDDEN: Final = frozenset({"content-length", "transfer-encoding", "host", "connection", "idempotency-key"})

_Place = tuple[str, int, int]
"""Topic, partition and offset."""


def _target_problem(url: str) -> str | None:
    problem = url_problem(url) or template_problem(url)
    is_plain = all("!" <= each <= "~" for each in url) and "#" not in url
    return problem or (None if is_plain else "a URL is printable ASCII without spaces and #")


def _headers_problem(text: str) -> str | None:
    try:
        names = [name.lower() for name in _headers(text)]
    except ValueError as error:
        return str(error)
    found = _FORBIDDEN.intersection(names)
    if found:
        return f"{', '.join(sorted(found))} is set by the connector"
    return "use the setting authorization, which is not shown" if "authorization" in names else None


def _authorization_problem(text: Password | None) -> str | None:
    return "String must be printable ASCII" if text is not None and not _is_printable(text) else None


@dataclass(frozen=True)
class _Request:
    """Records that one request carries."""

    method: str
    target: str
    records: Sequence[SinkRecord]


class HttpSink(Sink):
    """Sends records to a web service."""

    no_target = "a web service takes requests, and what they did cannot be read back or done again elsewhere"

    class Config(settings.Config):
        url: str = option(
            "Where to send, with ${topic}, ${partition}, ${offset}, ${key}, ${key:name} and ${field:name} in path and "
            "query.",
            importance="HIGH",
            check=_target_problem,
        )
        method: Literal["POST", "PUT", "PATCH", "DELETE"] = option("Method of the requests.", default="POST")
        authorization: Password | None = option(
            "Value of the header Authorization.", default=None, check=_authorization_problem
        )
        headers: str = option("More headers, as Name: value|Name: value.", default="", check=_headers_problem)
        content_type: str | None = option("Content-Type; that of the format by default.", default=None)
        request_body: Literal["value", "record"] = option(
            "What is sent of a record: its value, or an object with topic, partition, offset, timestamp, key, value.",
            default="value",
        )
        batch_size: int = option("Records of one request.", default=1, low=1, high=10_000)
        batch_format: Literal["json", "ndjson"] = option(
            "Form of a request with several records: an array, or a line for each.", default="json"
        )
        max_in_flight: int = option(
            "Requests at the same time; those of a key follow each other.", default=4, low=1, high=64
        )
        behavior_on_null_values: Literal["ignore", "delete", "fail"] = option(
            "What is done with a tombstone: nothing, a DELETE request, or it fails.", default="ignore"
        )
        timeout_ms: int = option("How long to wait for the server.", default=30_000, low=1)
        tls_ca_file: str | None = option("Certificates to trust, as a PEM file; the system's by default.", default=None)

        def check_all(self) -> Sequence[tuple[str, str]]:
            """A DELETE must name what is deleted."""
            deletes = self.method == "DELETE" or self.behavior_on_null_values == "delete"
            if deletes and not RecordTemplate(self.url).placeholders:
                return [("url", "a DELETE for each record needs a placeholder in the URL, for example ${key}")]
            if self.content_type is not None and not _is_printable(self.content_type):
                return [("content.type", "String must be printable ASCII")]
            return ()

    def __init__(self, config: HttpSink.Config) -> None:
        super().__init__(config)
        self._target = RecordTemplate(_target_of(config.url))
        self._clients: list[HttpClient] = []
        self._threads: ThreadPoolExecutor | None = None
        self._accepted: set[_Place] = set()
        """Records that the server has since the last flush; they are not sent again if others of their batch fail."""
        self._not_before = 0.0
        self._headers = _headers(config.headers)
        self._headers["Content-Type"] = (
            config.content_type or _CONTENT_TYPES[config.batch_format if config.batch_size > 1 else "json"]
        )
        if config.authorization is not None:
            self._headers["Authorization"] = str(config.authorization)

    def open(self) -> None:
        config: HttpSink.Config = self.config
        ca_file = None if config.tls_ca_file is None else str(self.paths.check(config.tls_ca_file))
        self._clients = [
            HttpClient(config.url, timeout_s=config.timeout_ms / 1000, ca_file=ca_file)
            for _ in range(config.max_in_flight)
        ]
        self._threads = ThreadPoolExecutor(config.max_in_flight, "http-sink")

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        for each in self._clients:
            each.close()

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        self.revoked(partitions)
        return {}

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        gone = set(partitions)
        self._accepted = {each for each in self._accepted if TopicPosition(each[0], each[1]) not in gone}

    def write(self, batch: SinkBatch) -> None:
        """Send every record; each key has its lane, so its requests follow each other."""
        remaining_s = self._not_before - time.monotonic()
        if remaining_s > 0:
            raise RetriableFailure(
                f"{self._clients[0].origin} asked to wait {remaining_s:.0f} more seconds", retry_after_s=remaining_s
            )
        assert self._threads is not None
        lanes: dict[int, list[SinkRecord]] = {}
        for record in batch:
            if _place(record) not in self._accepted:
                lanes.setdefault(self._lane_of(record), []).append(record)
        until_s = time.monotonic() + WRITE_S_MAX
        running = [self._threads.submit(self._run, self._clients[lane], lanes[lane], until_s) for lane in lanes]
        failures = [error for error in (each.exception() for each in running) if error is not None]
        if failures:
            raise min(failures, key=_urgency)

    def flush(self) -> None:
        self._accepted.clear()

    def _lane_of(self, record: SinkRecord) -> int:
        if record.key is None:
            return record.original_partition % int(self.config.max_in_flight)
        return zlib.crc32(value_bytes(record.key, record)) % int(self.config.max_in_flight)

    def _run(self, client: HttpClient, records: Sequence[SinkRecord], until_s: float) -> None:
        for request in self._requests(records):
            if self.stopping.is_set() or time.monotonic() > until_s:
                raise RetriableFailure(f"{client.origin} has not answered every request of the batch yet")
            if request.method:
                self._send(client, request)
            self._accepted.update(map(_place, request.records))

    def _requests(self, records: Sequence[SinkRecord]) -> Iterator[_Request]:
        """Yield requests of neighbouring records that go to the same place."""
        waiting: list[SinkRecord] = []
        method = target = ""
        for record in records:
            next_method, next_target = self._destination(record)
            if waiting and ((next_method, next_target) != (method, target) or len(waiting) >= self._size_of(method)):
                yield _Request(method, target, waiting)
                waiting = []
            method, target = next_method, next_target
            waiting.append(record)
        if waiting:
            yield _Request(method, target, waiting)

    def _size_of(self, method: str) -> int:
        return 1 if method == "DELETE" else int(self.config.batch_size)

    def _destination(self, record: SinkRecord) -> tuple[str, str]:
        """Return method and target; empty ones for a tombstone that is ignored."""
        method: str = self.config.method
        if record.is_tombstone and method != "DELETE":
            match self.config.behavior_on_null_values:
                case "fail":
                    raise RecordFailed(f"the record of {record.place} has no value", record)
                case "ignore":
                    return "", ""
            method = "DELETE"
        target = self._target.fill(record, lambda part: quote_from_bytes(part, safe="").encode()).decode()
        if any(each in (".", "..") for each in target.partition("?")[0].split("/")):
            raise RecordFailed(f"the URL of the record of {record.place} would leave its path: {target}", record)
        return method, target

    def _send(self, client: HttpClient, request: _Request) -> None:
        body = None if request.method == "DELETE" else self._body(request.records)
        headers = {**self._headers, IDEMPOTENCY_KEY: _idempotency_key(request.records)}
        if body is None:
            del headers["Content-Type"]
        answer = client.request(request.method, request.target, body, headers)
        if not answer.is_success and not (request.method == "DELETE" and answer.status in _GONE):
            raise self._failure(client, request, answer)

    def _failure(self, client: HttpClient, request: _Request, answer: TargetAnswer) -> ConnectFailed:
        first = request.records[0]
        said = f"status {answer.status}: {answer.excerpt}" if answer.excerpt else f"status {answer.status}"
        what = f"{request.method} of the record of {first.place}"
        if len(request.records) > 1:
            what = f"{request.method} of {len(request.records)} records from {first.place} on"
        message = f"{client.origin} answered {what} with {said}"
        if answer.is_retriable:
            if answer.retry_after_s is not None:
                self._not_before = max(self._not_before, time.monotonic() + answer.retry_after_s)
            return RetriableFailure(message, retry_after_s=answer.retry_after_s)
        if answer.status in _NOT_THE_RECORDS_FAULT:
            return ConnectFailed(message)
        # Without a record the worker writes each of the batch alone, and so finds the bad one.
        return RecordFailed(message, first if len(request.records) == 1 else None)

    def _body(self, records: Sequence[SinkRecord]) -> bytes:
        config: HttpSink.Config = self.config
        if config.batch_size == 1 and config.request_body == "value":
            return value_bytes(records[0].value, records[0])
        parts = [json_bytes(self._content(each), each) for each in records]
        if config.batch_size == 1:
            return parts[0]
        return b"[" + b",".join(parts) + b"]" if config.batch_format == "json" else b"\n".join([*parts, b""])

    def _content(self, record: SinkRecord) -> Any:
        if self.config.request_body == "value":
            return record.value
        topic, partition, offset = _place(record)
        return {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
        }


def _target_of(url: str) -> str:
    """Return path and query of a URL that may have placeholders."""
    behind_host = re.sub(r"^[a-z]+://[^/?]*", "", url, flags=re.IGNORECASE)
    return behind_host if behind_host.startswith("/") else f"/{behind_host}"


def _place(record: SinkRecord) -> _Place:
    return record.original_topic or record.topic, record.original_partition, record.offset


def _idempotency_key(records: Sequence[SinkRecord]) -> str:
    """Return a name that only these records have: equal keys of different requests would make a receiver drop one."""
    names = ["{}-{}-{}".format(*_place(each)) for each in records]
    return names[0] if len(names) == 1 else hashlib.sha256("\n".join(names).encode()).hexdigest()


def _urgency(error: BaseException) -> int:
    """Order failures: those that are no ConnectFailed, those for good, those that pass, those of one record."""
    if not isinstance(error, ConnectFailed):
        return 0
    return 3 if isinstance(error, RecordFailed) else 2 if isinstance(error, RetriableFailure) else 1


def _headers(text: str) -> dict[str, str]:
    made = {}
    for each in text.split("|") if text else ():
        name, colon, value = each.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name.replace("-", "").replace("_", "").isalnum() or not _is_printable(name + value):
            raise ValueError(f"a header is Name: value in printable ASCII, not {each!r}")
        made[name] = value
    return made


def _is_printable(text: str) -> bool:
    return all(" " <= each <= "~" for each in text)
