"""A schema registry's REST API: Strandline's, or any that has Confluent's."""

from __future__ import annotations

import base64
import json
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable

ANSWER_BYTES_MAX: Final = 64 << 20
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class SchemaApi:
    """A registry at a URL. A name and password in the URL log in, unless `authorization` does."""

    def __init__(self, url: str, timeout_s: float, *, authorization: str = "") -> None:
        self.url, in_url = login_of(url.rstrip("/"))
        self._authorization = authorization or in_url
        self._timeout_s = timeout_s

    def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """Return the JSON of an answer. Raise CommandFailed with what the registry said."""
        asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        url = "/".join([self.url, *(quote(part, safe="") for part in path)]) + (f"?{urlencode(asked)}" if asked else "")
        data = None if body is None else json.dumps(body).encode()
        request = Request(url, data, {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}, method=method)
        if self._authorization:
            # A redirect must not carry it to another host.
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:
                return json.loads(_bounded(answer.read(ANSWER_BYTES_MAX + 1)) or b"null")
        except HTTPError as error:
            raise _failure(error) from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(
                f"cannot reach the registry at {self.url} ({reason})",
                hint="start one with `strandline registry serve`, or name it with --registry or STRANDLINE_REGISTRY",
            ) from None


def login_of(url: str) -> tuple[str, str]:
    """Return a URL without the name and password in it, and the header Authorization that they make, or nothing."""
    split = urlsplit(url)
    before, at, place = split.netloc.rpartition("@")
    if not at:
        return url, ""
    name, _, password = before.partition(":")
    token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return split._replace(netloc=place).geturl(), f"Basic {token}"


def _bounded(data: bytes) -> bytes:
    if len(data) > ANSWER_BYTES_MAX:
        raise CommandFailed(f"the registry answers more than {ANSWER_BYTES_MAX:,} bytes; ask for less")
    return data


class RegistryRefused(CommandFailed):
    """An error answer of the registry, with Confluent's code, or that of HTTP if it names none."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


def _failure(error: HTTPError) -> CommandFailed:
    try:
        told = json.loads(error.read())
        message, code = str(told["message"]), int(told["error_code"])
    except (ValueError, KeyError, TypeError):
        return RegistryRefused(f"the registry answered {error.code} {error.reason}", error.code)
    if error.code == 404:
        return NotFound(f"{message.rstrip('.')} ({code})", hint="`strandline schema list` shows what there is")
    return RegistryRefused(f"the registry refused it: {message} ({code})", code)
