"""A server that speaks as much of S3 as the stores use, with faults that a test plans for the next requests.

It has real sockets and one thread a connection. Its bucket is a dict with a lock, or another S3 server behind it, to
which it forwards each request as it came. It checks no signatures, and it stands in for no store where fencing is
judged: that is versitygw's part.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET: Final = "lake"
PAGE: Final = 1000
_FORWARDED_NOT: Final = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Request:
    """One request, whole."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.target).path).removeprefix(f"/{BUCKET}").removeprefix("/")

    @property
    def query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}


@dataclass
class Response:
    """One answer, whole."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """What happens to the next requests that match, instead of or after the work.

    `status` and `code` answer without doing the work. `loses` drops the connection before the work or after it.
    `cuts_body` ends the body of the answer after so many bytes. `changes` makes another answer of a good one.
    """

    method: str = ""
    key: str = ""
    status: int = 0
    code: str = ""
    loses: str = ""
    cuts_body: int | None = None
    changes: Callable[[Response], Response] | None = None
    delay_s: float = 0.0
    times: int = 1

    def matches(self, request: Request) -> bool:
        return self.times > 0 and self.method in ("", request.method) and self.key in request.key


Backend = Callable[[Request], Response]


def refusal(status: int, code: str) -> Response:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planned</Message></Error>".encode()
    return Response(status, body, {"Content-Type": "application/xml"})


class MemoryBucket:
    """A bucket in memory. `ignores_conditions` makes it one of those that accept every create."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.ignores_conditions = False
        self.ignores_ranges = False
        self.ignores_deletes = False
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Response:
        with self._lock:
            return getattr(self, f"_{request.method.lower()}")(request)  # type: ignore[no-any-return]

    def _put(self, request: Request) -> Response:
        query = request.query
        if "uploadId" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = request.body
            return Response(200, headers={"ETag": _tag(request.body)})
        if request.headers.get("if-none-match") == "*" and not self.ignores_conditions and request.key in self.objects:
            return refusal(412, "PreconditionFailed")
        self.objects[request.key] = request.body
        return Response(200, headers={"ETag": _tag(request.body)})

    def _get(self, request: Request) -> Response:
        if not request.key:
            return self._list(request.query)
        found = self.objects.get(request.key)
        if found is None:
            return refusal(404, "NoSuchKey")
        headers = {"ETag": _tag(found), "Last-Modified": "Wed, 18 Nov 2026 20:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if wanted is None or self.ignores_ranges:
            return Response(200, found, headers)
        start, end = int(wanted[1]), min(int(wanted[2]), len(found) - 1)
        if start >= len(found):
            return refusal(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end}/{len(found)}"
        return Response(206, found[start : end + 1], headers)

    def _head(self, request: Request) -> Response:
        return self._get(request)

    def _delete(self, request: Request) -> Response:
        if "uploadId" in request.query:
            self.uploads.pop(request.query["uploadId"], None)
        elif not self.ignores_deletes:
            self.objects.pop(request.key, None)
        return Response(204)

    def _post(self, request: Request) -> Response:
        query = request.query
        if "delete" in query:
            keys = [unescape(each) for each in re.findall(r"<Key>(.*?)</Key>", request.body.decode())]
            for key in keys:
                if not self.ignores_deletes:
                    self.objects.pop(key, None)
            gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return _xml(f"<DeleteResult>{gone}</DeleteResult>")
        if "uploads" in query:
            upload = f"upload-{len(self.uploads)}-{request.key.replace('/', '-')}"
            self.uploads[upload] = {}
            return _xml(
                f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(request.key)}</Key>"
                f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = self.uploads.pop(query["uploadId"])
        self.objects[request.key] = b"".join(parts[number] for number in sorted(parts))
        return _xml(
            f"<CompleteMultipartUploadResult><Location>x</Location><Bucket>{BUCKET}</Bucket>"
            f"<Key>{escape(request.key)}</Key><ETag>{_tag(self.objects[request.key])}</ETag>"
            "</CompleteMultipartUploadResult>"
        )

    def _list(self, query: Mapping[str, str]) -> Response:
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        keys = sorted(key for key in self.objects if key.startswith(query.get("prefix", "")) and key > after)
        page, rest = keys[:PAGE], keys[PAGE:]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-18T20:00:00.000Z</LastModified>"
            f"<ETag>{_tag(self.objects[key])}</ETag><Size>{len(self.objects[key])}</Size></Contents>"
            for key in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        return _xml(
            f"<ListBucketResult><Name>{BUCKET}</Name><KeyCount>{len(page)}</KeyCount>"
            f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{more}{rows}</ListBucketResult>"
        )


def forward_to(port: int) -> Backend:
    """Return a backend that sends each request to another server, signed as it is."""

    def answer(request: Request) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name not in _FORWARDED_NOT:
                    connection.putheader(name, value)
            connection.putheader("content-length", str(len(request.body)))
            connection.endheaders(request.body)
            got = connection.getresponse()
            body = got.read()
            headers = {name: value for name, value in got.getheaders() if name.lower() not in _FORWARDED_NOT}
            if request.method == "HEAD":
                headers["X-Length"] = got.getheader("Content-Length", "0")
            return Response(got.status, body, headers)
        finally:
            connection.close()

    return answer


class S3Stub:
    """The server. `faults` are taken in order by the requests that match them; `seen` is what came."""

    def __init__(self, backend: Backend | None = None) -> None:
        self.bucket = MemoryBucket()
        self.backend: Backend = backend or self.bucket
        self._is_own = backend is None
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        stub = self

        class Handler(_Handler):
            owner = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint": f"http://127.0.0.1:{self.port}",
            "aws_allow_http": "true",
            "aws_region": "us-east-1",
            "aws_access_key_id": "tester",
            "aws_secret_access_key": "tester-secret",
        }

    def plan(self, *faults: Fault) -> None:
        with self._lock:
            self.faults += faults

    def forget(self) -> None:
        """Drop the faults, what came, and the objects of the own bucket."""
        with self._lock:
            self.faults.clear()
            self.seen.clear()
            if self._is_own:
                self.backend = self.bucket = MemoryBucket()

    def taken(self, request: Request) -> Fault | None:
        with self._lock:
            self.seen.append((request.method, request.key))
            for fault in self.faults:
                if fault.matches(request):
                    fault.times -= 1
                    return fault
            return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(backend: Backend | None = None) -> Iterator[S3Stub]:
    stub = S3Stub(backend)
    try:
        yield stub
    finally:
        stub.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: S3Stub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        request = Request(self.command, self.path, headers, body)
        # A request that is delayed beyond its test must not change the bucket of the next one.
        backend = self.owner.backend
        fault = self.owner.taken(request)
        if fault is None:
            self._send(request, backend(request))
            return
        if fault.delay_s:
            time.sleep(fault.delay_s)
        if fault.loses == "before":
            self.close_connection = True
            return
        response = refusal(fault.status, fault.code) if fault.status else backend(request)
        if fault.loses == "after":
            self.close_connection = True
            return
        if fault.changes is not None:
            response = fault.changes(response)
        self._send(request, response, cut=fault.cuts_body)

    def _send(self, request: Request, response: Response, *, cut: int | None = None) -> None:
        length = response.headers.pop("X-Length", str(len(response.body)))
        try:
            self.send_response_only(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if response.status != 204:
                self.send_header("Content-Length", length)
            self.end_headers()
            if request.method != "HEAD":
                self.wfile.write(response.body if cut is None else response.body[:cut])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        if cut is not None:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _xml(text: str) -> Response:
    return Response(200, f"<?xml version='1.0'?>{text}".encode(), {"Content-Type": "application/xml"})
