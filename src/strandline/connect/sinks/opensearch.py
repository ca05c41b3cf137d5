"""OpenSearchSink: documents of OpenSearch or Elasticsearch, by the bulk API over plain HTTP.

A document has the record's key as its id and the record's offset as its external version. The server rejects a
version that is not newer than the one it has. So a repeated batch, and a task that was replaced, change nothing.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from strandline.connect import config as settings
from strandline.connect.config import Password, option
from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.records import SinkRecord
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.document_id import document_id
from strandline.connect.sinks.http_client import EXCERPT_LENGTH, HttpClient, TargetAnswer, url_problem
from strandline.connect.sinks.opensearch_indexes import (
    OpenSearchIndexes,
    document_digest,
    generation,
    generations,
)
from strandline.connect.sinks.plain_json import json_bytes
from strandline.connect.sinks.record_template import RecordTemplate, template_problem
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey

ID_BYTES_MAX: Final = 512
INDEX_BYTES_MAX: Final = 255
_NOT_IN_INDEXES: Final = frozenset('\\/*?"<>| ,#:')
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_TOO_LARGE: Final = 413
_BLOCKED: Final = "cluster_block_exception"
SUFFIX: Final = "rebuild"


@dataclass(frozen=True)
class _Action:
    """One item of a bulk request."""

    record: SinkRecord
    lines: bytes


class OpenSearchSink(Sink):
    """Writes records to OpenSearch or Elasticsearch, as documents by key."""

    class Config(settings.Config):
        url: str = option(
            "Address of the server, for example http://localhost:9200.", importance="HIGH", check=url_problem
        )
        index: str = option(
            "Name of the index, with ${topic}; it is written in lower case.", default="${topic}", check=template_problem
        )
        document_id: Literal["key", "record"] = option(
            "What a document is named by: the record's key, or topic, partition and offset.", default="key"
        )
        document_version: Literal["offset", "none"] = option(
            "External version of a document: the offset, or none, if keys come from several partitions.",
            default="offset",
        )
        behavior_on_null_values: Literal["delete", "ignore", "fail"] = option(
            "What a tombstone does to its document.", default="delete"
        )
        username: str | None = option("User, for Basic authentication.", default=None)
        password: Password | None = option("Password of the user.", default=None)
        api_key: Password | None = option("API key, instead of a user.", default=None)
        batch_max_bytes: int = option("Size of a bulk request, before compression.", default=5_000_000, low=1024)
        compression: Literal["none", "gzip"] = option("Compression of requests.", default="none")
        timeout_ms: int = option("How long to wait for the server.", default=60_000, low=1)
        tls_ca_file: str | None = option("Certificates to trust, as a PEM file; the system's by default.", default=None)

        def check_all(self) -> Sequence[tuple[str, str]]:
            """A user has a password, and no API key beside it."""
            if (self.username is None) != (self.password is None):
                return [("password", "username and password belong together")]
            if self.username is not None and self.api_key is not None:
                return [("api.key", "use either username and password, or api.key")]
            return ()

    def __init__(self, config: OpenSearchSink.Config) -> None:
        super().__init__(config)
        self._index = RecordTemplate(config.index)
        self._topics: dict[str, str] = {}
        """The topic that goes to an index, to notice two names that differ only in their case."""
        self._suffix = ""
        """What stands in the names of fresh indexes."""
        self._fresh: dict[str, str] = {}
        """The fresh index of each index."""
        self._compared: set[str] = set()
        self._client = HttpClient(config.url, timeout_s=config.timeout_ms / 1000)
        self._target = urlsplit(config.url).path.rstrip("/") + "/_bulk"
        self._headers = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
        if config.username is not None:
            pair = b64encode(f"{config.username}:{config.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        elif config.api_key is not None:
            self._headers["Authorization"] = f"ApiKey {config.api_key}"
        if config.compression == "gzip":
            self._headers["Content-Encoding"] = "gzip"

    def open(self) -> None:
        config: OpenSearchSink.Config = self.config
        ca_file = None if config.tls_ca_file is None else str(self.paths.check(config.tls_ca_file))
        self._client = HttpClient(config.url, timeout_s=config.timeout_ms / 1000, ca_file=ca_file)
        self._indexes = OpenSearchIndexes(self._client, self._target.removesuffix("/_bulk"), self._headers)

    def close(self) -> None:
        self._client.close()

    def write(self, batch: SinkBatch) -> None:
        # Every record is looked at before the first is sent, so a bad one leaves the whole batch to be written again.
        actions = [action for action in map(self._action, batch) if action is not None]
        first = size_bytes = 0
        for number, action in enumerate(actions):
            if number > first and size_bytes + len(action.lines) > self.config.batch_max_bytes:
                self._send(actions[first:number])
                first, size_bytes = number, 0
            size_bytes += len(action.lines)
        if first < len(actions):
            self._send(actions[first:])

    def _action(self, record: SinkRecord) -> _Action | None:
        config: OpenSearchSink.Config = self.config
        if record.is_tombstone:
            if config.behavior_on_null_values == "fail":
                raise RecordFailed(f"the record of {record.place} has no value", record)
            if config.behavior_on_null_values == "ignore" or config.document_id == "record":
                return None
        elif not isinstance(record.value, Mapping):
            raise RecordFailed(f"the value of the record of {record.place} is no object, as a document must be", record)
        about: dict[str, Any] = {
            "_index": self._place_of(record),
            "_id": self._id_of(record),
        }
        if config.document_version == "offset":
            about |= {"version": record.offset, "version_type": "external"}
        line = json_bytes({"delete" if record.is_tombstone else "index": about}, record) + b"\n"
        return _Action(record, line if record.is_tombstone else line + json_bytes(record.value, record) + b"\n")

    def expected(self, record: SinkRecord) -> ExpectedRow:
        action = self._action(record)
        if action is None:
            raise RecordFailed(f"the record of {record.place} has no value, and is ignored", record)
        place = self._place_of(record)
        self._compared.add(place)
        key = TargetKey(place, (self._id_of(record),))
        if record.is_tombstone:
            return ExpectedRow(key, None)
        return ExpectedRow(key, document_digest(json.loads(json_bytes(record.value, record))))

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        return self._indexes.digests(list(keys))

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        for each in sorted(self._compared):
            yield from self._indexes.documents(each)

    def fresh_target(self, suffix: str = SUFFIX) -> Self:
        fresh = type(self)(self.config)
        fresh.paths = self.paths
        fresh._suffix = suffix
        return fresh

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Keep tasks from writing to the old indexes until the swap: they try again, and find the new ones."""
        held = []
        try:
            for name, fresh in self._fresh.items():
                current = self._indexes.find(name)
                if current is not None and current.holder != fresh:
                    held.append(current)
                    self._indexes.block_writes(current.holder, is_blocked=True)
            yield
        finally:
            for each in held:
                found = self._indexes.find(each.name)
                if found is not None and found.holder == each.holder:
                    self._indexes.block_writes(each.holder, is_blocked=False)

    def swap(self) -> None:
        if not self._fresh:
            raise ConnectFailed("there is no fresh index: it was never written, or is swapped already")
        moved = []
        for name, fresh in self._fresh.items():
            current = self._indexes.find(name)
            if current is not None and current.holder == name:
                self._indexes.clone(name, f"{name}__{self._suffix}_0")
            if current is None or current.holder != fresh:
                moved.append((current, name, fresh))
        self._indexes.move_aliases(moved)
        self._fresh.clear()

    def discard(self) -> None:
        """Remove the fresh indexes, which are newer than those in use."""
        if not self._suffix:
            raise ConnectFailed("these indexes are no fresh ones")
        for index, number, used in self._made(self._suffix):
            if number > used:
                self._indexes.delete(index)

    def drop_old(self) -> None:
        for index, number, used in self._made(SUFFIX):
            if number < used:
                self._indexes.delete(index)

    def _made(self, suffix: str) -> Iterator[tuple[str, int, int]]:
        """Yield the indexes that rebuilds have made, the number of each, and that of the one in use."""
        pattern, expression = self._index.wildcards("*", self._name_expression)
        found = self._indexes.matching(f"{pattern.lower()}__{suffix}_*")
        for index, name, number in generations(found, expression.lower(), suffix):
            current = self._indexes.find(name)
            yield index, number, 0 if current is None else generation(current.holder, name, suffix)

    def _name_expression(self, placeholder: str) -> str:
        topics = self.config.properties.get("topics")
        if placeholder != "topic" or not topics:
            return "[^*]+"
        return f"(?:{'|'.join(re.escape(each.strip()) for each in topics.split(','))})"

    def _place_of(self, record: SinkRecord) -> str:
        """Return the index that a record is written to: a fresh one is made with the mapping of the old one."""
        name = self._index_of(record)
        if not self._suffix:
            return name
        if name not in self._fresh:
            current = self._indexes.find(name)
            number = 1 if current is None else generation(current.holder, name, self._suffix) + 1
            fresh = f"{name}__{self._suffix}_{number}"
            wrong = index_problem(fresh)
            if wrong is not None:
                raise ConnectFailed(f"{name} cannot be rebuilt: {wrong}")
            self._indexes.create(fresh, current)
            self._fresh[name] = fresh
        return self._fresh[name]

    def _id_of(self, record: SinkRecord) -> str:
        return document_id(record, by_key=self.config.document_id == "key", size_bytes_max=ID_BYTES_MAX)

    def _index_of(self, record: SinkRecord) -> str:
        try:
            name = self._index.fill(record).decode().lower()
        except UnicodeDecodeError:
            raise RecordFailed(f"the index of the record of {record.place} is no text", record) from None
        wrong = index_problem(name)
        if wrong is not None:
            raise RecordFailed(f"the record of {record.place} cannot go to the index {name!r}: {wrong}", record)
        if self._index.uses("topic") and self._topics.setdefault(name, record.topic) != record.topic:
            raise ConnectFailed(
                f"the topics {self._topics[name]} and {record.topic} would share the index {name}: "
                "set index, or rename one with a transform"
            )
        return name

    def _send(self, actions: Sequence[_Action]) -> None:
        body = b"".join(each.lines for each in actions)
        if self.config.compression == "gzip":
            body = gzip.compress(body, 6, mtime=0)
        answer = self._client.request("POST", self._target, body, self._headers)
        if answer.status == _TOO_LARGE and len(actions) > 1:
            middle = len(actions) // 2
            self._send(actions[:middle])
            self._send(actions[middle:])
            return
        if not answer.is_success:
            raise self._failure(actions, answer)
        self._check_items(actions, answer)

    def _failure(self, actions: Sequence[_Action], answer: TargetAnswer) -> ConnectFailed:
        said = f"{self._client.origin} answered a bulk request with status {answer.status}: {answer.excerpt}"
        if answer.is_retriable:
            return RetriableFailure(said, retry_after_s=answer.retry_after_s)
        if answer.status == _TOO_LARGE:
            record = actions[0].record
            return RecordFailed(f"the record of {record.place} is too large: {said}", record)
        return ConnectFailed(said)

    def _check_items(self, actions: Sequence[_Action], answer: TargetAnswer) -> None:
        """Look at the result of each item. What passes comes first, because then all are sent again."""
        try:
            items = [next(iter(each.values())) for each in json.loads(answer.body)["items"]]
            statuses = [int(each["status"]) for each in items]
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
            items = statuses = []
        if len(items) != len(actions):
            raise ConnectFailed(
                f"{self._client.origin} did not answer a bulk request with a result for each item: {answer.excerpt}"
            )
        failures = [
            self._item_failure(action.record, status, item)
            for action, status, item in zip(actions, statuses, items, strict=True)
            if not 200 <= status < 300
        ]
        found = [each for each in failures if each is not None]
        if found:
            raise min(found, key=lambda each: (isinstance(each, RecordFailed), not isinstance(each, RetriableFailure)))

    def _item_failure(self, record: SinkRecord, status: int, item: Mapping[str, Any]) -> ConnectFailed | None:
        """Return why an item failed; None if the index has this record, or a newer one, or nothing to delete."""
        error = item.get("error")
        kind = error.get("type") if isinstance(error, Mapping) else None
        if status == _CONFLICT and self.config.document_version == "offset":
            return None
        if status == _NOT_FOUND and record.is_tombstone:
            return None
        reason = str(error.get("reason", "") if isinstance(error, Mapping) else error)[:EXCERPT_LENGTH]
        message = f"the record of {record.place} was rejected with status {status}: {kind}: {reason}"
        if status in (429, _CONFLICT) or status >= 500 or kind == _BLOCKED:
            return RetriableFailure(message)
        return ConnectFailed(message) if status in (401, 403, _NOT_FOUND) else RecordFailed(message, record)


def index_problem(name: str) -> str | None:
    """Return what is wrong with the name of an index; None if nothing is."""
    if not name or name in (".", "..") or name[0] in "-_+":
        return "it must not be . or .., nor begin with -, _ or +"
    if _NOT_IN_INDEXES.intersection(name) or not name.isprintable():
        return 'it must not have any of \\ / * ? " < > | , # : or a space'
    if len(name.encode()) > INDEX_BYTES_MAX:
        return f"it is longer than {INDEX_BYTES_MAX} bytes"
    return None
