"""Requests over a connection that is kept open, with the standard library.

Redirects to another host are never followed: they would carry a record, and maybe a password, to it.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from strandline.connect.failures import ConnectFailed, RetriableFailure

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
EXCERPT_LENGTH: Final = 200
RETRY_AFTER_MAX_S: Final = 3600.0
RETRIABLE: Final = frozenset({408, 425, 429})
"""Statuses that pass, beside those of 500 and more."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_MAX: Final = 3


class TargetAnswer(NamedTuple):
    """What a server answers."""

    status: int
    body: bytes
    retry_after_s: float | None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_retriable(self) -> bool:
        return self.status in RETRIABLE or self.status >= 500

    @property
    def excerpt(self) -> str:
        """The first characters of the body, on one line."""
        return " ".join(self.body[: EXCERPT_LENGTH * 4].decode("utf-8", "replace").split())[:EXCERPT_LENGTH]


class HttpClient:
    """A connection to one server, for one thread at a time. It is opened when it is needed."""

    def __init__(self, url: str, *, timeout_s: float, ca_file: str | None = None) -> None:
        self._url = urlsplit(url)
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._connection: http.client.HTTPConnection | None = None

    @property
    def origin(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def request(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> TargetAnswer:
        """Send a request and return its answer. Raise RetriableFailure if the server cannot be reached."""
        for _ in range(_REDIRECTS_MAX):
            answer, location = self._request(method, target, body, headers)
            if answer.status not in _REDIRECTS:
                return answer
            moved = urlsplit(urljoin(self.origin + target, location))
            # Others of these statuses turn a POST into a GET.
            if answer.status not in (307, 308) or _origin(moved) != _origin(self._url):
                raise ConnectFailed(
                    f"{self.origin} redirects {method} with status {answer.status} to {location[:EXCERPT_LENGTH]}, "
                    "which is not followed: set the right URL"
                )
            target = moved.path + (f"?{moved.query}" if moved.query else "")
        raise ConnectFailed(f"{self.origin} redirects {method} more than {_REDIRECTS_MAX} times")

    def _request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[TargetAnswer, str]:
        was_open = self._connection is not None
        try:
            return self._exchange(method, target, body, headers)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if not was_open:
                raise self._unreachable(error) from None
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ConnectFailed(f"the certificate of {self.origin} is not trusted: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        # A server may close a connection that was idle, just when a request is sent.
        try:
            return self._exchange(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[TargetAnswer, str]:
        if self._connection is None:
            self._connection = self._connected()
        self._connection.request(method, target, body, dict(headers))
        response = self._connection.getresponse()
        found = response.read(ANSWER_BYTES_MAX)
        if response.will_close or not response.isclosed():
            self.close()
        answer = TargetAnswer(response.status, found, _seconds(response.getheader("Retry-After")))
        return answer, response.getheader("Location") or ""

    def _connected(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, self._url.port, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise ConnectFailed(f"the certificates of {self._ca_file} cannot be read: {error}") from None
        return http.client.HTTPSConnection(host, self._url.port, timeout=self._timeout_s, context=context)

    def _unreachable(self, error: Exception) -> RetriableFailure:
        return RetriableFailure(f"{self.origin} cannot be reached: {error or type(error).__name__}")


def url_problem(url: str) -> str | None:
    """Return what is wrong with the URL of a server; None if nothing is. It serves as the `check` of an option."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"not a URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "the URL begins with http://host or https://host"
    if parts.username is not None or parts.password is not None:
        return "a user or password in the URL would be shown: use the setting for it"
    if "${" in parts.netloc:
        return "a record must not choose the host"
    return None


def _origin(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date."""
    if text is None:
        return None
    try:
        seconds = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - time()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), RETRY_AFTER_MAX_S)
