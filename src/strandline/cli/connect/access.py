"""Requests of the commands to a worker: Strandline's, or any that has Kafka Connect's REST API."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

import typer

from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, UsageFailed, did_you_mean

URL_DEFAULT: Final = "http://127.0.0.1:8083"
FAILED: Final = "FAILED"
_AGAIN_S: Final = 0.2
_NOT_RUNNING: Final = (
    "start one with `strandline connect serve`, or name it with --url or STRANDLINE_CONNECT_URL; connectors of "
    "`strandline connect run` have no REST API"
)

WorkerUrl = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="STRANDLINE_CONNECT_URL",
        help="Any worker of the Connect cluster; a name and password go before its host: https://me:secret@host:8083.",
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar="STRANDLINE_CONNECT_CA",
        help="Certificates to check the worker's with, in PEM; by default those of the system.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file", metavar="FILE", envvar="STRANDLINE_CONNECT_TOKEN_FILE", help="Log in with the token in a file."
    ),
]
ConnectorName = Annotated[str, typer.Argument(metavar="NAME", help="The connector.")]


class WorkerRefused(CommandFailed):
    """An error answer of a worker, with its status of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _Answer:
    status: int
    reason: str
    body: bytes


class ConnectApi:
    """A worker at a URL. A request is repeated while the group of workers rebalances."""

    def __init__(self, url: str, timeout_s: float, *, ca: str | None = None, token_file: str | None = None) -> None:
        split = urlsplit(url if "://" in url else f"http://{url}")
        if split.scheme not in ("http", "https") or not split.hostname:
            raise UsageFailed(f"--url {url!r} is not http://HOST:PORT or https://HOST:PORT")
        self._host = split.hostname
        try:
            self._port = split.port or (443 if split.scheme == "https" else 80)
        except ValueError:
            raise UsageFailed(f"--url {url!r} has no valid port") from None
        self._context = _context(ca) if split.scheme == "https" else None
        self._path = split.path.rstrip("/")
        self._headers = {"Accept": "application/json", **_login(split.netloc, token_file)}
        self._timeout_s = timeout_s
        self.url = split._replace(netloc=split.netloc.rpartition("@")[2]).geturl().rstrip("/")

    def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """Return the JSON of an answer, None if it has none. Raise CommandFailed with what the worker said."""
        asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        target = "/".join([self._path, *(quote(part, safe="") for part in path)])
        target += f"?{urlencode(asked, doseq=True)}" if asked else ""
        until = time.monotonic() + self._timeout_s
        while True:
            answer = self._send(method, target, None if body is None else json.dumps(body).encode())
            # The group rebalances, or the worker that was asked does not know its leader yet.
            if answer.status != http.client.CONFLICT or time.monotonic() > until:
                return self._checked(answer)
            time.sleep(_AGAIN_S)

    def _send(self, method: str, target: str, data: bytes | None) -> _Answer:
        headers = self._headers | ({} if data is None else {"Content-Type": "application/json"})
        try:
            connection = self._connection()
            try:
                connection.request(method, target, data, headers)
                found = connection.getresponse()
                return _Answer(found.status, found.reason, found.read())
            finally:
                connection.close()
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(
                f"the certificate of {self.url} is not trusted: {error.verify_message}",
                hint="say --ca FILE with the certificate that signed it",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
            raise Unreachable(
                f"no worker answers at {self.url} ({reason}): is `strandline connect serve` running?", hint=_NOT_RUNNING
            ) from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)

    def _checked(self, answer: _Answer) -> Any:
        try:
            told = json.loads(answer.body or b"null")
        except ValueError:
            told = None
            if answer.status < http.client.BAD_REQUEST:
                raise CommandFailed(f"{self.url} answers no JSON: it is no Connect worker") from None
        if answer.status < http.client.BAD_REQUEST:
            return told
        message = told.get("message") if isinstance(told, dict) else None
        if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise CommandFailed(
                f"the worker does not allow it: {message or answer.reason}",
                hint="log in with https://NAME:PASSWORD@HOST:PORT as --url, or with --token-file",
            )
        if answer.status == http.client.NOT_FOUND:
            raise NotFound(str(message or answer.reason), hint="`strandline connect list` shows what there is")
        raise WorkerRefused(f"the worker refused it: {message or f'{answer.status} {answer.reason}'}", answer.status)

    # What several commands ask

    def connectors(self, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
        """Return `info` and `status` of connectors, by name; of all if none are named. Raise NotFound."""
        found: dict[str, dict[str, Any]] = self.ask("GET", "connectors", expand=["info", "status"])
        if not isinstance(found, dict):
            raise CommandFailed(f"{self.url} answers no object: it is no Connect worker")
        for name in names or ():
            if name not in found:
                # One that is new has no status yet, and is left out of the list.
                info = self._info(name, found)
                found[name] = {"info": info}
        return {name: found[name] for name in (names or sorted(found))}

    def _info(self, name: str, known: dict[str, Any]) -> Any:
        try:
            return self.ask("GET", "connectors", name)
        except NotFound:
            meant = did_you_mean(name, known)
            hint = f"{meant}?" if meant else "`strandline connect list` shows what there is"
            raise NotFound(f"there is no connector {name!r}", hint=hint) from None

    def config(self, name: str) -> dict[str, str] | None:
        """Return the config of a connector; None if there is none. Passwords are `[hidden]`."""
        try:
            found: dict[str, str] = self.ask("GET", "connectors", name, "config")
        except NotFound:
            return None
        return found


def first_sentence(trace: str | None) -> str:
    """Return what a trace says first, in one line."""
    lines = (trace or "").strip().splitlines()
    return lines[0] if lines else ""


def _context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageFailed(f"--ca {ca} cannot be used: {error}") from None


def _login(place: str, token_file: str | None) -> dict[str, str]:
    before, at, _ = place.rpartition("@")
    if token_file is not None:
        try:
            return {"Authorization": f"Bearer {Path(token_file).read_text(encoding='ascii').strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no token"
            raise UsageFailed(f"--token-file {token_file} cannot be read: {why}") from None
    if not at:
        return {}
    name, _, password = before.partition(":")
    token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return {"Authorization": f"Basic {token}"}
