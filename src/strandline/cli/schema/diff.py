"""`strandline schema diff`: what changed between two versions, or would change with a file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.schema.access import References, SchemaTypeName, SubjectName, schema_body
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import SchemaSources, engines_for
from strandline.cli.schema.texts import diff_lines, print_diff, readable
from strandline.schemas.failures import RegistryError

LATEST = "latest"


def diff(
    subject: SubjectName,
    first: Annotated[
        str | None, typer.Argument(metavar="V1|FILE", help="A version, or a file. Default: the last but one version.")
    ] = None,
    second: Annotated[str | None, typer.Argument(metavar="V2", help="A version. Default: the last one.")] = None,
    kind: SchemaTypeName = None,
    references: References = None,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show how two versions of a schema differ, line by line; with a FILE how it differs from the last version.

    Both are compared as the registry keeps them, so spaces and the order of attributes make no difference.
    """
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    if first is not None and not _is_version(first):
        if second is not None:
            raise UsageFailed("a FILE is compared with the last version: leave V2 out")
        before, after = _version(api, subject, LATEST), _of_file(api, subject, first, kind, references)
    else:
        before, after = _two_versions(api, subject, first, second)
    names = (f"{subject} {before['name']}", f"{subject} {after['name']}")
    lines = diff_lines(before["text"], after["text"], names)
    if as_json:
        places = {"from": before["name"], "to": after["name"]}
        output.json_line({"subject": subject, **places, "is_same": not lines, "diff": lines})
    elif not lines:
        output.line(f"{before['name']} and {after['name']} of {subject} are the same")
    else:
        print_diff(output, lines)
    output.flush()


def _is_version(text: str) -> bool:
    return text == LATEST or (text.isascii() and text.isdigit())


def _two_versions(
    api: SchemaApi, subject: str, first: str | None, second: str | None
) -> tuple[dict[str, str], dict[str, str]]:
    if first is None:
        numbers = api.ask("GET", "subjects", subject, "versions")
        if len(numbers) < 2:
            hint = f"`strandline schema diff {subject} FILE` compares a file"
            raise UsageFailed(f"{subject} has one version", hint=hint)
        first = str(numbers[-2])
    if second is not None and not _is_version(second):
        raise UsageFailed(f"{second!r} is no version: say a number or {LATEST}")
    return _version(api, subject, first), _version(api, subject, second or LATEST)


def _version(api: SchemaApi, subject: str, number: str) -> dict[str, str]:
    found = api.ask("GET", "subjects", subject, "versions", number, deleted=number != LATEST)
    return _named(f"version {found['version']}", found["schema"], found.get("schemaType", "AVRO"))


def _of_file(api: SchemaApi, subject: str, file: str, kind: str | None, references: list[str] | None) -> dict[str, str]:
    body: dict[str, Any] = schema_body(file, kind, references)
    source = SchemaSources(api).of(body, subject)
    try:
        text = engines_for([source]).parse(source).canonical()
    except RegistryError as error:
        raise CommandFailed(f"{file}: {error.message}") from None
    return _named("stdin" if file == "-" else file, text, source.type)


def _named(name: str, text: str, kind: str) -> dict[str, str]:
    return {"name": name, "text": readable(text, kind)}
