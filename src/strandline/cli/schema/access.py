"""What the commands about schemas share: options, and the schema in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from strandline.cli.common.failures import CommandFailed, UsageFailed

TYPES_BY_SUFFIX: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

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
