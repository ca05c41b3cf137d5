"""WebhookSource: an HTTP server whose requests become records. A request is answered 200 when they are committed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Sequence
from typing import Final

from strandline.connect import schema
from strandline.connect.config import Password, option
from strandline.connect.records import Batch, Header, SourceOffsets, SourcePosition, SourceRecord
from strandline.connect.source import Source
from strandline.connect.sources.bodies import at_path, values_of
from strandline.connect.sources.held_requests import HeldRequest, HeldRequests, WriteOutcome
from strandline.connect.sources.http_receiver import (
    HttpAnswer,
    HttpReceiver,
    HttpReceiverConfig,
    HttpRequest,
    busy,
    refused,
)
from strandline.connect.sources.recent_ids import RecentIds

IN_A_THREAD_BYTES: Final = 64 * 1024
"""A body of this size is parsed in a thread, so that the loop goes on."""


class WebhookConfig(HttpReceiverConfig):
    """Settings of WebhookSource."""

    topic: str = option("Topic of the records.", importance="HIGH")
    path: str = option("Path that requests are posted to.", default="/", check=lambda path: _check_path(path))
    webhook_secret: Password | None = option("Key of the signature that each request must have.", default=None)
    signature_header: str = option(
        "Header of the signature: `sha256=` and the HMAC-SHA256 of the body in hex.", default="X-Hub-Signature-256"
    )
    body_format: str = option(
        "How a body becomes records; `auto` takes the Content-Type. A JSON array becomes one record per element.",
        default="auto",
        choices=("auto", "json", "ndjson", "lines", "text", "bytes"),
    )
    key_path: str = option("Dot path of the key in a JSON value.", default="")
    id_header: list[str] = option(
        "Headers that name a request; the first that is there counts.", default=["Idempotency-Key", "X-GitHub-Delivery"]
    )
    id_window: int = option("Ids that are remembered at least.", default=1000, low=1, high=100_000)
    headers_include: list[str] = option("Headers of the request that become headers of its records.", default=[])

    def has_secret(self) -> bool:
        return bool(self.webhook_secret) or super().has_secret()


class WebhookSource(Source):
    """Receives HTTP requests. Exactly once, if their senders try again and name each request by an id."""

    Config = WebhookConfig
    config: WebhookConfig

    async def open(self) -> None:
        self._pending = HeldRequests(self.config.requests_max)
        self._receiver = HttpReceiver(self.config, self._admit, self._handle)
        await self._receiver.open()

    @property
    def port(self) -> int:
        """The port that the source listens on."""
        return self._receiver.port

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        recent = RecentIds({"webhook": self.config.path}, self.config.id_window, offsets)
        self._pending.begin(recent.sequence)
        while True:
            records: list[SourceRecord] = []
            number = recent.sequence + 1
            for request in await self._pending.take(self.config.batch_max_records):
                known = recent.number_of(request.id) if request.id is not None else None
                if known is None:
                    records += request.records
                    if request.id is not None:
                        recent.add(request.id, number)
                self._pending.expect(request, number if known is None else known)
            if records:
                yield Batch(records, offsets=recent.positions(number))

    async def committed(self, positions: Sequence[SourcePosition]) -> None:
        self._pending.committed(positions)

    async def close(self) -> None:
        if hasattr(self, "_receiver"):
            self._pending.stop()
            await self._receiver.close()

    def _admit(self, request: HttpRequest) -> HttpAnswer | None:
        if request.path != self.config.path:
            return refused(404, "there is nothing at this path")
        if request.method not in ("POST", "PUT"):
            return refused(405, "requests are posted", ("Allow", "POST, PUT"))
        if self.config.webhook_secret and self.config.signature_header.lower() not in request.headers:
            return refused(401, f"the header {self.config.signature_header} is missing")
        return None

    async def _handle(self, request: HttpRequest) -> HttpAnswer:
        if not self._is_signed(request):
            return refused(401, "the signature is not that of the body")
        if len(request.body) > IN_A_THREAD_BYTES:
            pending = HeldRequest(await asyncio.to_thread(self._records, request), self._id_of(request))
        else:
            pending = HeldRequest(self._records(request), self._id_of(request))
        if not pending.records:
            return HttpAnswer(200)
        outcome = await self._pending.submit(pending, self.config.answer_timeout_ms / 1000)
        return HttpAnswer(200) if outcome is WriteOutcome.COMMITTED else busy(outcome.value)

    def _is_signed(self, request: HttpRequest) -> bool:
        secret = self.config.webhook_secret
        if not secret:
            return True
        expected = "sha256=" + hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
        given = request.headers[self.config.signature_header.lower()]
        return hmac.compare_digest(expected.encode(), given.strip().lower().encode("utf-8"))

    def _id_of(self, request: HttpRequest) -> str | None:
        for name in self.config.id_header:
            value = request.headers.get(name.lower())
            if value:
                return f"{name.lower()}:{value}"
        return None

    def _records(self, request: HttpRequest) -> list[SourceRecord]:
        config = self.config
        values, found_schema = values_of(
            request.unpacked(), config.body_format, request.headers.get("content-type", "")
        )
        headers = [
            Header(name, request.headers[name.lower()], schema.STRING)
            for name in dict.fromkeys((*config.id_header, *config.headers_include))
            if name.lower() in request.headers
        ]
        return [
            SourceRecord(
                value=value,
                key=at_path(value, config.key_path) if config.key_path else None,
                headers=headers,
                value_schema=found_schema,
            )
            for value in values
        ]


def _check_path(path: str) -> str | None:
    return None if path.startswith("/") and "?" not in path else "a path begins with / and has no query"
