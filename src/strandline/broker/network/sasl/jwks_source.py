"""Where the keys of an OAUTHBEARER listener come from: a file, or an https URL. Read at the start, then again by time.

At the start the keys must be there, or the listener does not start. Later a source that fails keeps the keys that were
there, is logged, and is tried again, longer apart each time.
"""

from __future__ import annotations

import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidConfig
from strandline.runtime.runtime import Runtime
from strandline.security.sasl.jwt import KeyRing, parse_keys

JWKS_BYTES_MAX: Final = 1024 * 1024
FETCH_TIMEOUT_S: Final = 10.0

log = logging.getLogger("strandline.authentication")


class RefreshTimes(NamedTuple):
    """Milliseconds between refreshes, and between attempts after a failure: the first and the longest pause."""

    refresh_ms: int
    retry_ms: int
    retry_ms_max: int


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would be a way to another host, which no setting names."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def reader_of(url: str) -> Callable[[], bytes]:
    """Return what reads the keys; it blocks. InvalidConfig for a URL that is neither https nor a file."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        path = Path(urllib.parse.unquote(parts.path))
        return lambda: _file(path)
    if parts.scheme == "https" and parts.hostname:
        return lambda: _fetched(url)
    raise InvalidConfig("sasl.oauthbearer.jwks.endpoint.url is no address of keys; expected https://... or file:///...")


def _file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(JWKS_BYTES_MAX + 1)


def _fetched(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(url, timeout=FETCH_TIMEOUT_S) as answer:
        content: bytes = answer.read(JWKS_BYTES_MAX + 1)
    return content


class JwksSource:
    """The keys of one listener, kept fresh."""

    def __init__(self, runtime: Runtime, url: str, times: RefreshTimes) -> None:
        """Read the keys, which may take seconds. InvalidConfig if that fails."""
        self._runtime = runtime
        self._url = url
        self._times = times
        self._read = reader_of(url)
        try:
            content = self._read()
        except (OSError, urllib.error.URLError) as error:
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.url={url} cannot be read ({_reason(error)}), and without keys no "
                "token can be checked; expected a JWKS there"
            ) from None
        self.ring = KeyRing(_parsed(content), runtime.monotonic)
        self.ring.on_missing = self._refresh_now
        self._is_reading = False
        self._failures = 0
        self._timer = runtime.call_later(times.refresh_ms / 1000, self._refresh)

    def _refresh_now(self) -> None:
        self._timer.cancel()
        self._refresh()

    def _refresh(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._runtime.in_thread(lambda: _parsed(self._read()), self._on_read)

    def _on_read(self, keys: Any, error: BaseException | None) -> None:
        self._is_reading = False
        if error is None:
            if self._failures:
                log.info("the keys of %s can be read again", self._url)
            self._failures = 0
            self.ring.keys = keys
            delay_ms = self._times.refresh_ms
        else:
            self._failures += 1
            if self._failures == 1:
                log.warning(
                    "cannot read the keys of %s (%s); those that were read before stay", self._url, _reason(error)
                )
            delay_ms = min(self._times.retry_ms * 2 ** min(self._failures - 1, 20), self._times.retry_ms_max)
        self._timer.cancel()
        self._timer = self._runtime.call_later(delay_ms / 1000, self._refresh)


def _parsed(content: bytes) -> Any:
    if len(content) > JWKS_BYTES_MAX:
        raise InvalidConfig(f"the JWKS has more than {JWKS_BYTES_MAX} bytes")
    return parse_keys(content)


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return str(reason).lower()
