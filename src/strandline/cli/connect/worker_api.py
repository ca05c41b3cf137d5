"""The REST API of a worker: Strandline's, or any that has Kafka Connect's."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, UsageFailed, did_you_mean

ANSWER_BYTES_MAX: Final = 64 << 20
CLASS: Final = "connector.class"
FAILED: Final = "FAILED"
_AGAIN_S: Final = 0.2
_LOOK_S: Final = 0.1
_NOT_RUNNING: Final = (
    "start one with `strandline connect serve`, or name it with --url or STRANDLINE_CONNECT_URL; connectors of "
    "`strandline connect run` have no REST API"
)


class WorkerRefused(CommandFailed):
    """An error answer of a worker, with its status of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class WorkerDenied(CommandFailed):
    """A request that the worker does not allow this user."""


@dataclass(frozen=True)
class _Answer:
    status: int
    reason: str
    body: bytes


class ConnectApi:
    """A worker at a URL. A request is repeated while the group of workers rebalances.

    A name and password in the URL log in, unless `token_file` or `authorization`, a header, does.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        *,
        ca: str | None = None,
        token_file: str | None = None,
        authorization: str = "",
    ) -> None:
        split = urlsplit(url if "://" in url else f"http://{url}")
        if split.scheme not in ("http", "https") or not split.hostname:
            raise UsageFailed(f"--url {_shown(url)!r} is not http://HOST:PORT or https://HOST:PORT")
        self._host = split.hostname
        try:
            self._port = split.port or (443 if split.scheme == "https" else 80)
        except ValueError:
            raise UsageFailed(f"--url {_shown(url)!r} has no valid port") from None
        self._context = _context(ca) if split.scheme == "https" else None
        self._path = split.path.rstrip("/")
        login = {"Authorization": authorization} if authorization else _login(split.netloc, token_file)
        self._headers = {"Accept": "application/json", **login}
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
                body = found.read(ANSWER_BYTES_MAX + 1)
                if len(body) > ANSWER_BYTES_MAX:
                    raise CommandFailed(f"{self.url} answers more than {ANSWER_BYTES_MAX:,} bytes: ask for less")
                return _Answer(found.status, found.reason, body)
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
            raise WorkerDenied(
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


def _shown(url: str) -> str:
    """Return an address that cannot be read as one, without what may be a name and password."""
    return url.rpartition("@")[2]


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


class WrongSetting(NamedTuple):
    """A wrong setting, None if the config as a whole is wrong."""

    setting: str | None
    message: str


def sentence_of(finding: WrongSetting) -> str:
    """Return a message that names its setting."""
    message = finding.message.replace("\n", " ")
    return message if finding.setting is None or finding.setting in message else f"{finding.setting}: {message}"


def checked_by_worker(api: ConnectApi, config: Mapping[str, str]) -> Iterator[WrongSetting]:
    """Yield what a worker finds wrong with a config, one error for each setting."""
    plugin = config.get(CLASS)
    if not plugin:
        yield WrongSetting(CLASS, f'Missing required configuration "{CLASS}" which has no default value.')
        return
    try:
        told = api.ask("PUT", "connector-plugins", plugin, "config", "validate", body=dict(config))
    except WorkerRefused as refused:
        yield WrongSetting(None, refused.message)
        return
    for each in told["configs"]:
        # Kafka's rules say more of a wrong value, but the first of them is what is wrong.
        for message in each["value"]["errors"][:1]:
            yield WrongSetting(each["value"]["name"], message)


def restart_units(api: ConnectApi, name: str, *, tasks: bool = False, failed: bool = False) -> list[str]:
    """Restart a connector and its tasks, and return what restarts. With no option, itself and what has failed."""
    is_plain = not tasks and not failed
    # Kafka's request without options leaves tasks that have failed as they are.
    told = api.ask("POST", "connectors", name, "restart", includeTasks=tasks or is_plain, onlyFailed=failed or is_plain)
    units = [("connector", told["connector"]), *((f"task {each['id']}", each) for each in told["tasks"])]
    restarted = [unit for unit, each in units if each["state"] == "RESTARTING"]
    if is_plain and "connector" not in restarted:
        api.ask("POST", "connectors", name, "restart")
        restarted.insert(0, "connector")
    return restarted


def set_state(api: ConnectApi, name: str, verb: str, wanted: str, timeout_s: float) -> dict[str, Any]:
    """Pause, resume or stop a connector, and wait until it is so. Return its last status; what failed stays failed."""
    api.ask("PUT", "connectors", name, verb)
    until = time.monotonic() + timeout_s
    while True:
        units: list[dict[str, Any]] = []
        try:
            told: dict[str, Any] = api.ask("GET", "connectors", name, "status")
            units = [told["connector"], *told["tasks"]]
        except NotFound:
            # A connector that is new has no state yet.
            told = {}
        others = [each["state"] for each in units if each["state"] not in (wanted, FAILED)]
        # Tasks of one that is resumed are started a little later.
        is_whole = wanted != "RUNNING" or len(units) > 1 or any(each["state"] == FAILED for each in units)
        if units and not others and is_whole:
            return told
        if time.monotonic() > until:
            state = others[0] if others else "without tasks"
            raise Unreachable(
                f"{name} was told to {verb}, and is {state} after {timeout_s:g} s",
                hint=f"`strandline connect status {name}` says how it is",
            )
        time.sleep(_LOOK_S)
