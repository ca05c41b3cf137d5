"""HttpPollingSource: asks an HTTP address again and again, and writes what is new in its answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from strandline.connect.config import Config, Password, as_written, option
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.records import Batch, SourceOffsets, SourceRecord
from strandline.connect.source import Source
from strandline.connect.sources.bodies import BodyInvalid, at_path, json_of, values_of
from strandline.connect.sources.http_requests import FetchedAnswer, HttpFetcher

log = logging.getLogger("strandline.connect")

HEADER_PREFIX: Final = "http.header."
LAST_MAX: Final = 500
"""Records with the highest cursor value that are remembered, to know them if the server gives them again."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def _check_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or re.search(r"[\x00-\x20\x7f]", url):
        return "it is no address like https://host/path"
    return "a user in the address is not sent; set authorization" if "@" in parts.netloc else None


class HttpPollingConfig(Config):
    """Settings of HttpPollingSource. Settings `http.header.NAME` are headers of each request."""

    http_url: str = option("Address that is asked.", importance="HIGH", check=_check_url)
    topic: str = option("Topic of the records.", importance="HIGH")
    poll_interval_ms: int = option("Time between polls.", default=10_000, low=1)
    authorization: Password | None = option("Value of the header Authorization.", default=None)
    secret_header_name: str | None = option("A header whose value is secret, as X-Api-Key.", default=None)
    secret_header_value: Password | None = option("Its value.", default=None)
    format: str = option("What a body is.", default="json", choices=("json", "ndjson", "lines", "text", "bytes"))
    records_path: str = option("Dot path of the records in a JSON answer; else the answer itself.", default="")
    key_path: str = option("Dot path of the key in a record.", default="")
    cursor_parameter: str | None = option("Query parameter that takes the cursor.", default=None)
    cursor_path: str | None = option("Dot path of the next cursor in the answer.", default=None)
    cursor_field: str | None = option("Dot path in a record; the highest value is the next cursor.", default=None)
    cursor_initial: str | None = option("Cursor of the first request.", default=None)
    next_path: str | None = option(
        "Dot path of the address of the next page; `Link: rel=next` needs none.", default=None
    )
    skip_unchanged: bool = option("Whether an answer that is the same as the last one is left out.", default=True)
    request_timeout_ms: int = option("Time for a whole request.", default=30_000, low=1)
    retry_after_max_ms: int = option("Longest wait that a server may ask for.", default=300_000, low=0)
    body_max_bytes: int = option("Largest answer.", default=16 * 1024 * 1024, low=1)
    redirect_hosts: list[str] = option("Other hosts that redirects and pages may lead to.", default=[])
    ssl_ca_location: str | None = option(
        "PEM file of the authorities that are trusted; else the system's.", default=None
    )

    def check_all(self) -> Sequence[tuple[str, str]]:
        errors = []
        if self.cursor_path and self.cursor_field:
            errors.append(("cursor.path", "cursor.path and cursor.field exclude each other"))
        if self.cursor_path and not self.cursor_parameter:
            errors.append(("cursor.parameter", "cursor.path needs cursor.parameter"))
        if self.format != "json" and (self.cursor_path or self.next_path or self.records_path):
            errors.append(("format", "records.path, cursor.path and next.path need format=json"))
        for name, value in self.headers().items():
            if not _TOKEN.fullmatch(name) or re.search(r"[^\x20-\x7e\x80-\xff]", value):
                errors.append((f"{HEADER_PREFIX}{name}", f"{name} is no header, or its value has other than latin-1"))
        return errors

    def headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        found = {
            name.removeprefix(HEADER_PREFIX): value
            for name, value in self.properties.items()
            if name.startswith(HEADER_PREFIX)
        }
        if self.authorization:
            found["Authorization"] = str(self.authorization)
        if self.secret_header_name:
            found[self.secret_header_name] = str(self.secret_header_value or "")
        return found


@dataclass
class _Progress:
    """The position. `next`, `seen` and `seen_last` are there while a poll has further pages."""

    cursor: Any = None
    etag: str | None = None
    last_modified: str | None = None
    digest: str | None = None
    next: str | None = None
    seen: Any = None
    last: list[str] = field(default_factory=list)
    """Digests of the records whose cursor value is `cursor`."""
    seen_last: list[str] = field(default_factory=list)
    """Those of `seen`."""

    def offset(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, [])} or {"polled": True}


class HttpPollingSource(Source):
    """Polls an HTTP address. Exactly once, if it has a cursor or answers that only change by new records."""

    Config = HttpPollingConfig
    config: HttpPollingConfig

    @classmethod
    def only_partition(cls, config: HttpPollingConfig) -> Mapping[str, str]:
        # As it was written: a secret in it is not stored, and may change.
        return {"url": as_written(config.properties["http.url"])}

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        config = self.config
        partition = self.only_partition(config)
        # Versions before stored the address with its secrets: that position is taken over, and removed.
        resolved = {"url": config.http_url}
        forgotten = [(resolved, None)] if resolved != partition and offsets.get(resolved) else []
        stored = dict(offsets.get(partition) or offsets.get(resolved) or {})
        stored.pop("polled", None)
        progress = _Progress(**stored)
        if progress.cursor is None:
            progress.cursor = config.cursor_initial
        fetcher = HttpFetcher(
            config.headers(),
            config.request_timeout_ms / 1000,
            config.body_max_bytes,
            frozenset(config.redirect_hosts),
            config.ssl_ca_location,
        )
        while True:
            answer = await asyncio.to_thread(fetcher.get, *self._request(progress))
            wait_s = self._wait_s(answer)
            if wait_s is None:
                before = progress.offset()
                records = self._advance(fetcher, progress, answer)
                is_moved = progress.offset() != before
                if records or is_moved:
                    yield Batch(records, partition, progress.offset(), forgotten)
                    forgotten = []
                is_behind = progress.next or (config.cursor_path and records and is_moved)
                wait_s = 0 if is_behind else config.poll_interval_ms / 1000
            await asyncio.sleep(wait_s)

    def _request(self, progress: _Progress) -> tuple[str, dict[str, str]]:
        """Return the next address, and headers that spare an answer which is known."""
        if progress.next is not None:
            return progress.next, {}
        headers = {}
        if self.config.skip_unchanged and progress.etag:
            headers["If-None-Match"] = progress.etag
        if self.config.skip_unchanged and progress.last_modified:
            headers["If-Modified-Since"] = progress.last_modified
        parts = urlsplit(self.config.http_url)
        name = self.config.cursor_parameter
        if name is None or progress.cursor is None:
            return self.config.http_url, headers
        query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != name]
        return parts._replace(query=urlencode([*query, (name, _text(progress.cursor))])).geturl(), headers

    def _wait_s(self, answer: FetchedAnswer) -> float | None:
        """Return how long to wait before the request is tried again; None if it was answered."""
        status = answer.status
        if 200 <= status < 300 or status == 304:
            return None
        place = f"{self.config.http_url.partition('?')[0]} answers {status}"
        if status == 429 or status >= 500 or status == 408:
            asked_s = answer.retry_after_s(time.time())
            if asked_s is None:
                raise RetriableFailure(place)
            wait_s = min(asked_s, self.config.retry_after_max_ms / 1000)
            log.warning("%s and asks to wait; the next request is in %.0f s", place, wait_s)
            return wait_s
        raise ConnectFailed(f"{place}: {answer.body[:200].decode('utf-8', 'replace').strip() or 'no reason is given'}")

    def _advance(self, fetcher: HttpFetcher, progress: _Progress, answer: FetchedAnswer) -> list[SourceRecord]:
        """Return the new records of an answer, and move the position behind them."""
        config = self.config
        if answer.status in (204, 304):
            _finish(progress)
            return []
        if progress.next is None:
            digest = hashlib.sha256(answer.url.encode() + b"\n" + answer.body).hexdigest()[:32]
            if config.skip_unchanged and digest == progress.digest:
                return []
            progress.digest = digest
            progress.etag = answer.headers.get("etag")
            progress.last_modified = answer.headers.get("last-modified")
        try:
            whole = json_of(answer.body) if config.format == "json" else None
            values, schema = self._values(whole, answer)
        except BodyInvalid as error:
            raise ConnectFailed(f"the answer of {config.http_url.partition('?')[0]} cannot be read: {error}") from None
        if config.cursor_field:
            values = self._new_ones(progress, values)
        following = answer.next_link() or self._next_page(whole, answer)
        progress.next = None if following is None else fetcher.allowed(answer.url, following)
        if config.cursor_path:
            found = at_path(whole, config.cursor_path)
            progress.seen = found if found is not None and found != "" else progress.seen
        if progress.next is None:
            _finish(progress)
        key_path = config.key_path
        return [
            SourceRecord(value=value, value_schema=schema, key=at_path(value, key_path) if key_path else None)
            for value in values
        ]

    def _values(self, whole: Any, answer: FetchedAnswer) -> tuple[list[Any], Any]:
        if self.config.format != "json":
            return values_of(answer.body, self.config.format)
        found = at_path(whole, self.config.records_path)
        if found is None:
            return [], None
        return (found if isinstance(found, list) else [found]), None

    def _next_page(self, whole: Any, answer: FetchedAnswer) -> str | None:
        found = at_path(whole, self.config.next_path) if self.config.next_path else None
        if not found:
            return None
        if not isinstance(found, str):
            raise ConnectFailed(f"next.path={self.config.next_path} is {found!r}, and must be an address")
        return urljoin(answer.url, found)

    def _new_ones(self, progress: _Progress, values: list[Any]) -> list[Any]:
        """Return records that are not known, and move `seen` to the highest value of the cursor's field.

        Many servers give records from the cursor on, including it: those are known by their digests. Others take no
        cursor and always give the latest: what is below the cursor is known, too.
        """
        known = set(progress.last)
        if progress.seen is None:
            progress.seen, progress.seen_last = progress.cursor, list(progress.last)
        fresh = []
        for value in values:
            found = at_path(value, self.config.cursor_field or "")
            if found is not None:
                rank, digest = self._rank(found), _digest(value)
                if digest in known or (progress.cursor is not None and rank < self._rank(progress.cursor)):
                    continue
                if progress.seen is None or rank > self._rank(progress.seen):
                    progress.seen, progress.seen_last = found, [digest]
                elif rank == self._rank(progress.seen) and len(progress.seen_last) < LAST_MAX:
                    progress.seen_last.append(digest)
            fresh.append(value)
        return fresh

    def _rank(self, value: Any) -> tuple[int, Any]:
        """Return what decides the order of cursor values: numbers, also those in texts, before other texts."""
        if isinstance(value, str):
            return (0, int(value)) if value.isascii() and value.isdecimal() else (1, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConnectFailed(f"cursor.field={self.config.cursor_field} is {value!r}, and must be a number or text")
        return (0, value)


def _finish(progress: _Progress) -> None:
    """End a poll: the highest cursor that was seen is that of the next one."""
    if progress.seen is not None:
        progress.cursor, progress.last = progress.seen, progress.seen_last
    progress.seen = progress.next = None
    progress.seen_last = []


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def _text(cursor: Any) -> str:
    return cursor if isinstance(cursor, str) else json.dumps(cursor)
