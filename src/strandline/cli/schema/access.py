"""Requests of the commands to a schema registry: Strandline's, or any that has Confluent's REST API."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

import typer

from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, UsageFailed

TYPES_BY_SUFFIX: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject, for example orders-value.")]
SchemaFile = Annotated[
    str, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto; - reads it from stdin.")
]
SchemaTypeName = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="AVRO, JSON or PROTOBUF; by default as the file's name.")
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="A schema that it uses. May be repeated."),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Store the schema in its normalised form.")]


class SchemaApi:
    """A registry at a URL."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self._headers = _login(url.rstrip("/"))
        self._timeout_s = timeout_s

    def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """Return the JSON of an answer. Raise CommandFailed with what the registry said."""
        asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        url = "/".join([self.url, *(quote(part, safe="") for part in path)]) + (f"?{urlencode(asked)}" if asked else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE, **self._headers}
        request = Request(url, data, headers, method=method)
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            raise _failure(error) from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(
                f"cannot reach the registry at {self.url} ({reason})",
                hint="start one with `strandline registry serve`, or name it with --registry or STRANDLINE_REGISTRY",
            ) from None


def _login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without the name and password in it, and the header that they make."""
    split = urlsplit(url)
    before, at, place = split.netloc.rpartition("@")
    if not at:
        return url, {}
    name, _, password = before.partition(":")
    token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return split._replace(netloc=place).geturl(), {"Authorization": f"Basic {token}"}


class RegistryRefused(CommandFailed):
    """An error answer of the registry, with Confluent's code."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


def _failure(error: HTTPError) -> CommandFailed:
    try:
        told = json.loads(error.read())
        message, code = str(told["message"]), int(told["error_code"])
    except (ValueError, KeyError, TypeError):
        return CommandFailed(f"the registry answered {error.code} {error.reason}")
    if error.code == 404:
        return NotFound(f"{message.rstrip('.')} ({code})", hint="`strandline schema list` shows what there is")
    return RegistryRefused(f"the registry refused it: {message} ({code})", code)


def schema_body(file: str, kind: str | None, references: list[str] | None) -> dict[str, Any]:
    """Return the body of a request about the schema in a file."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {error}") from None
    kind = (kind or TYPES_BY_SUFFIX.get(Path(file).suffix.lower(), "AVRO")).upper()
    body: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = [_reference(each) for each in references]
    return body


def _reference(text: str) -> dict[str, Any]:
    name, equals, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not (name and equals and subject and colon and version.isdigit()):
        raise UsageFailed(f"{text!r} is not NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}
