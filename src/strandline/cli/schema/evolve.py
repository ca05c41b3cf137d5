"""`strandline schema evolve`: the nearest change that passes, for one that a subject refuses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.schema.access import References, SchemaFile, SchemaTypeName, SubjectName, schema_body
from strandline.cli.schema.reasons import CompatReason, Versions, compare_here, level_of, print_reasons, reason_of
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import SchemaSources, engine_of, not_installed
from strandline.cli.schema.texts import diff_lines, print_diff, readable
from strandline.schemas.compatibility import compared_versions
from strandline.schemas.engines import SchemaSource

if TYPE_CHECKING:
    from strandline.schemas.evolve.evolution import Evolution

ROUNDS_MAX: Final = 3
"""Times that all versions are gone through: a repair for one may be needed again after one for another."""


@dataclass(frozen=True)
class NearestChange:
    """What to change in a refused schema. Without a text no way was found, and `left` says what is in it."""

    steps: tuple[str, ...]
    text: str | None
    left: tuple[CompatReason, ...] = ()


def evolve(
    subject: SubjectName,
    file: SchemaFile,
    write: Annotated[
        str | None, typer.Option("--write", metavar="FILE", help="Write the schema that would pass to a file.")
    ] = None,
    kind: SchemaTypeName = None,
    references: References = None,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Say why a subject refuses a schema, and name the nearest change that would pass. Exit code 5 if it refuses.

    What is proposed was parsed and compared with every version that counts. It keeps as much of the file as it can.
    """
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    sources = SchemaSources(api)
    new = sources.of(schema_body(file, kind, references), subject)
    level, earlier = level_of(api, subject), sources.versions(subject)
    reasons = compare_here(level, new, earlier)
    change = None if reasons is None else nearest_change(level, new, earlier)
    if change is not None and change.text is not None and write is not None:
        _write(write, readable(change.text, new.type))
    if as_json:
        found = {"subject": subject, "level": level, "is_compatible": reasons is None}
        found |= {"reasons": [each.as_json() for each in reasons or ()]}
        if change is not None:
            left = [each.as_json() for each in change.left]
            found |= {"steps": list(change.steps), "schema": change.text, "left": left}
        output.json_line(found)
    elif reasons is None or change is None:
        output.line(f"{subject} takes this schema as it is ({level})")
    else:
        output.line(f"{subject} does not take this schema ({level}):")
        print_reasons(output, reasons)
        _print_change(output, file, new, change)
    output.flush()
    if reasons is not None:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _print_change(output: Output, file: str, new: SchemaSource, change: NearestChange) -> None:
    output.line("")
    if change.text is None:
        output.line("no small change was found that passes" + (", beyond these steps:" if change.steps else ""))
    else:
        output.line(f"it would with {count(len(change.steps), 'change')}:")
    for step in change.steps:
        output.hanging("  ", "    ", step)
    if change.text is None:
        output.line("what is left:")
        print_reasons(output, change.left)
        return
    output.line("")
    before = readable(_canonical(new, new.text), new.type)
    print_diff(output, diff_lines(before, readable(change.text, new.type), (file, "what passes")))


def _canonical(new: SchemaSource, text: str) -> str:
    return engine_of(new.type).parse(text, dict(new.references)).canonical()


def nearest_change(level: str, new: SchemaSource, earlier: Versions) -> NearestChange:
    """Return the repairs after which a schema passes under a level, with each version that the level compares."""
    if any(old.type != new.type for _, old in earlier):
        raise CommandFailed(f"the subject has schemas of another type than {new.type}: no change makes it compatible")
    steps: list[str] = []
    text = new.text
    for _ in range(ROUNDS_MAX):
        is_changed = False
        for version, old in reversed(compared_versions(level, earlier)):
            found = _evolution(level, old, new, text)
            steps += [each for each in found.steps if each not in steps]
            if found.text is None:
                return NearestChange(tuple(steps), None, tuple(reason_of(each, version) for each in found.left))
            is_changed = is_changed or bool(found.steps)
            text = found.text
        if not is_changed:
            return NearestChange(tuple(steps), text)
    return NearestChange(tuple(steps), None)


def _evolution(level: str, old: SchemaSource, new: SchemaSource, text: str) -> Evolution:
    try:
        from strandline.schemas.evolve.evolution import SchemaText
        from strandline.schemas.evolve.evolution import evolve as repair
    except ModuleNotFoundError as error:
        raise not_installed(error) from None

    return repair(
        engine_of(new.type),
        SchemaText(old.text, dict(old.references)),
        SchemaText(text, dict(new.references)),
        backward=not level.startswith("FORWARD"),
        forward=not level.startswith("BACKWARD"),
    )


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}") from None
