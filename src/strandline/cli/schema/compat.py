"""`strandline schema compat`: would a subject take a schema, under its level or under each?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import ExitCode, NotFound
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.schema.access import References, SchemaFile, SchemaTypeName, SubjectName, schema_body
from strandline.cli.schema.reasons import CompatReason, ask_registry, compare_here, level_of, print_reasons
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import SchemaSources


def compat(
    subject: SubjectName,
    file: SchemaFile,
    every_level: Annotated[
        bool, typer.Option("--all", help="The verdict of each of the seven levels, computed here.")
    ] = False,
    kind: SchemaTypeName = None,
    references: References = None,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Say whether a subject would take a schema under its compatibility level, and if not, why. Exit code 5 if not.

    With --all it also says what each other level would answer, which needs all versions of the subject.
    """
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    body = schema_body(file, kind, references)
    level = level_of(api, subject)
    reasons = ask_registry(api, subject, body)
    by_level = _of_every_level(api, subject, body) if every_level else {}
    if as_json:
        found = {"subject": subject, "level": level, **_verdict(reasons)}
        if every_level:
            found["levels"] = {each: _verdict(why) for each, why in by_level.items()}
        output.json_line(found)
    else:
        output.line(f"{subject} takes this schema ({level})" if reasons is None else _refusal(subject, level))
        print_reasons(output, reasons or ())
        for each, why in by_level.items():
            output.line(f"{each:<20} {'yes' if why is None else 'no'}")
            print_reasons(output, why or (), " " * 21)
        if reasons is not None:
            output.flush()
            output.talk(f"`strandline schema evolve {subject} {file}` names the nearest change that passes")
    output.flush()
    if reasons is not None:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _refusal(subject: str, level: str) -> str:
    return f"{subject} does not take this schema ({level}):"


def _verdict(reasons: list[CompatReason] | None) -> dict[str, Any]:
    return {"is_compatible": reasons is None, "reasons": [each.as_json() for each in reasons or ()]}


def _of_every_level(api: SchemaApi, subject: str, body: dict[str, Any]) -> dict[str, list[CompatReason] | None]:
    from strandline.schemas.compatibility import LEVELS

    sources = SchemaSources(api)
    try:
        earlier = sources.versions(subject)
    except NotFound:
        earlier = []
    new = sources.of(body, subject)
    return {level: compare_here(level, new, earlier) for level in LEVELS}
