"""Requests to a schema registry: Strandline's, or any with Confluent's REST API.

Connections stay open. With several URLs the next one is tried if one does not answer.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure, SchemaRefused
from strandline.schemas.engines import SchemaSource
from strandline.schemas.types import REFERENCES_MAX

TIMEOUT_S: Final = 30.0
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_RETRIABLE: Final = frozenset((408, 429, 500, 502, 503, 504))
_FORBIDDEN: Final = frozenset((401, 403))


class RegistryClient:
    """A registry at one or more URLs. It may be used by several threads."""

    def __init__(self, urls: Sequence[str], user_info: str | None = None) -> None:
        self._places = [_Place(each, user_info) for each in urls]
        self._lock = Lock()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for each in self._places:
                each.close()

    def schema_by_id(self, schema_id: int | str, subject: str) -> SchemaSource:
        """Return the schema of an id or a GUID. Raise RecordFailed if the registry has none."""
        if isinstance(schema_id, str):
            found = self._ask("GET", "schemas", "guids", schema_id)
        else:
            found = self._ask("GET", "schemas", "ids", str(schema_id), query=f"?subject={quote(subject, safe='')}")
        return self._source(found)

    def latest(self, subject: str) -> tuple[int, SchemaSource]:
        """Return the id and the schema of the newest version of a subject."""
        found = self._ask("GET", "subjects", subject, "versions", "latest")
        return int(found["id"]), self._source(found)

    def register(self, subject: str, source: SchemaSource) -> int:
        """Register a schema, if it is not registered already, and return its id."""
        try:
            return int(self._ask("POST", "subjects", subject, "versions", body=_body(source))["id"])
        except SchemaRefused as error:
            raise SchemaRefused(f"the new schema of {subject} would break its contract: {error}") from None

    def find(self, subject: str, source: SchemaSource) -> int:
        """Return the id of a schema that is registered. Raise RecordFailed if it is not."""
        return int(self._ask("POST", "subjects", subject, body=_body(source))["id"])

    def _source(self, found: Mapping[str, Any]) -> SchemaSource:
        texts: dict[str, str] = {}
        self._add_references(found, texts)
        return SchemaSource(found.get("schemaType", "AVRO"), found["schema"], tuple(texts.items()))

    def _add_references(self, found: Mapping[str, Any], texts: dict[str, str]) -> None:
        for each in found.get("references") or ():
            if each["name"] in texts:
                continue
            if len(texts) >= REFERENCES_MAX:
                raise RecordFailed(f"a schema reaches more than {REFERENCES_MAX} others")
            target = self._ask("GET", "subjects", each["subject"], "versions", str(each["version"]))
            self._add_references(target, texts)
            texts[each["name"]] = target["schema"]

    def _ask(self, method: str, *path: str, body: Any = None, query: str = "") -> Any:
        target = "/".join(quote(each, safe="") for each in path) + query
        content = None if body is None else json.dumps(body).encode()
        reasons = []
        with self._lock:
            for place in list(self._places):
                try:
                    status, answer = place.ask(method, target, content)
                except (OSError, HTTPException) as error:
                    reasons.append(f"{place.url}: {error or type(error).__name__}")
                else:
                    if status not in _RETRIABLE:
                        return _result(status, answer, place.url)
                    reasons.append(f"{place.url} answered {status}")
                # The next request begins with one that may be there.
                self._places.append(self._places.pop(0))
        raise RetriableFailure(f"the schema registry cannot be reached ({'; '.join(reasons)})")


class _Place:
    """One URL, and the connection to it."""

    def __init__(self, url: str, user_info: str | None) -> None:
        split = urlsplit(url if "://" in url else f"http://{url}")
        before, _, _ = split.netloc.rpartition("@")
        user = unquote(before) or user_info
        self.url = f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}".rstrip("/")
        self._path = split.path.rstrip("/")
        self._host = split.hostname or "localhost"
        self._port = split.port
        self._is_secure = split.scheme == "https"
        self._connection: HTTPConnection | None = None
        self._headers = {"Content-Type": _CONTENT_TYPE, "Accept": f"{_CONTENT_TYPE}, application/json"}
        if user:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"

    def ask(self, method: str, target: str, content: bytes | None) -> tuple[int, bytes]:
        """Return the status and the body of an answer. A connection that was closed meanwhile is opened again."""
        for connection, is_last in self._connections():
            try:
                connection.request(method, f"{self._path}/{target}", content, self._headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, HTTPException):
                self.close()
                if is_last:
                    raise
        raise AssertionError("there is always a last connection")

    def _connections(self) -> Iterator[tuple[HTTPConnection, bool]]:
        if self._connection is not None:
            yield self._connection, False
        if self._is_secure:
            context = ssl.create_default_context()
            self._connection = HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        else:
            self._connection = HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        yield self._connection, True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _body(source: SchemaSource) -> dict[str, Any]:
    return {"schema": source.text} | ({} if source.type == "AVRO" else {"schemaType": source.type})


def _result(status: int, answer: bytes, url: str) -> Any:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if status == 200 and isinstance(found, dict):
        return found
    told = found.get("message") if isinstance(found, dict) else None
    reason = told or f"it answered {status}"
    if status == HTTPStatus.CONFLICT:
        raise SchemaRefused(reason)
    if status in _FORBIDDEN:
        raise ConnectFailed(f"the schema registry at {url} does not let this worker in: {reason}")
    raise RecordFailed(f"the schema registry at {url} refused a request: {reason}")
