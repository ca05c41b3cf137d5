"""GET requests with a bound on the body, on the whole time, and on the hosts that redirects may lead to."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from strandline._version import __version__
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.sources.bodies import BodyInvalid, unpacked

REDIRECTS_MAX: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_CHUNK_BYTES: Final = 64 * 1024
_BETWEEN_LINKS: Final = re.compile(r",\s*(?=<)")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class FetchedAnswer:
    """An answer. `headers` are by lower-case name, `url` is that of the last redirect."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def next_link(self) -> str | None:
        """Return the address of `Link: <...>; rel="next"`."""
        for link in _BETWEEN_LINKS.split(self.headers.get("link", "")):
            address, _, parameters = link.strip().removeprefix("<").partition(">")
            for parameter in parameters.split(";"):
                name, _, value = parameter.partition("=")
                if name.strip().lower() == "rel" and "next" in value.strip().strip('"').lower().split():
                    return str(urljoin(self.url, address))
        return None

    def retry_after_s(self, now_s: float) -> float | None:
        """Return how long the server asks to wait."""
        text = self.headers.get("retry-after", "").strip()
        if text.isdecimal():
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
        except ValueError:
            return None


@dataclass(frozen=True)
class HttpFetcher:
    """Sends GET requests with some headers to one host, and to those that redirects may lead to."""

    headers: Mapping[str, str]
    timeout_s: float
    body_bytes_max: int
    hosts: Collection[str] = ()
    """Hosts beside that of the first address that redirects and next pages may lead to."""
    ca_location: str | None = None

    def get(self, url: str, headers: Mapping[str, str]) -> FetchedAnswer:
        """Return an answer of any status. Raise RetriableFailure if the server is away, ConnectFailed for others."""
        deadline_s = time.monotonic() + self.timeout_s
        for _ in range(REDIRECTS_MAX + 1):
            try:
                answer = self._get_once(url, headers, deadline_s)
            except ssl.SSLCertVerificationError as error:
                raise ConnectFailed(
                    f"{_shown(url)} has no certificate that is trusted: {error.verify_message}"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                is_late = time.monotonic() >= deadline_s
                why = f"no answer within {self.timeout_s:g} s" if is_late else str(error) or type(error).__name__
                raise RetriableFailure(f"{_shown(url)} cannot be read: {why}") from None
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return answer
            url = self.allowed(url, urljoin(url, answer.headers["location"]))
        raise ConnectFailed(f"{_shown(url)} redirects more than {REDIRECTS_MAX} times")

    def allowed(self, origin: str, url: str) -> str:
        """Return an address that an answer names. Raise ConnectFailed if it is of a host that may not be asked."""
        before, after = urlsplit(origin), urlsplit(url)
        is_secure = after.scheme == "https" or (after.scheme == "http" and before.scheme == "http")
        is_same = _host(before) == _host(after) or (before.hostname == after.hostname and after.scheme != before.scheme)
        if not is_secure or not (is_same or after.hostname in self.hosts):
            raise ConnectFailed(f"{_shown(origin)} leads to {_shown(url)}, which redirect.hosts does not allow")
        return url

    def _get_once(self, url: str, headers: Mapping[str, str], deadline_s: float) -> FetchedAnswer:
        parts = urlsplit(url)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection = self._connection(parts, left_s)
        # The socket's own time-out begins again with each byte, so a slow server could hold this thread for hours.
        alarm = threading.Timer(left_s, _cut, (connection,))
        alarm.daemon = True
        alarm.start()
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            sent = {"User-Agent": f"strandline/{__version__}", "Accept-Encoding": "gzip"}
            connection.request("GET", target, headers={**sent, **self.headers, **headers})
            response = connection.getresponse()
            body = bytearray()
            while part := response.read(_CHUNK_BYTES):
                body += part
                if len(body) > self.body_bytes_max:
                    raise ConnectFailed(f"{_shown(url)} answers with more than body.max.bytes={self.body_bytes_max}")
            if time.monotonic() >= deadline_s or response.length:
                # `read` returns an early end as if it were the end.
                raise http.client.IncompleteRead(bytes(body))
            found: dict[str, str] = {}
            for name, value in response.getheaders():
                found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
            try:
                whole = unpacked(bytes(body), found.get("content-encoding", ""), self.body_bytes_max)
            except BodyInvalid as error:
                raise ConnectFailed(f"{_shown(url)} cannot be read: {error}") from None
            return FetchedAnswer(url, response.status, found, whole)
        finally:
            alarm.cancel()
            connection.close()

    def _connection(self, parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self.ca_location)
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)


def _cut(connection: http.client.HTTPConnection) -> None:
    """End a request that takes too long: whatever reads from its socket fails."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _host(parts: SplitResult) -> tuple[str | None, int | None]:
    return parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _shown(url: str) -> str:
    """Return an address without its query and user, which may hold secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
