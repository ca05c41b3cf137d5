"""`strandline schema diff|compat|evolve`: what changed, whether it passes, and what would."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.schema_files import SchemaFiles, proto, record

from strandline.cli.schema.registry_api import SchemaApi

ID, PORT = ("id", "int"), ("port", "string")
CLOSED = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")


@pytest.fixture
def subject() -> str:
    return f"tools/{uuid.uuid4().hex[:8]}-value"


@pytest.fixture
def files(tmp_path: Path) -> SchemaFiles:
    return SchemaFiles(tmp_path)


def register(cli: CommandLine, files: SchemaFiles, subject: str, *schemas: object, name: str = "v.avsc") -> None:
    for schema in schemas:
        cli.ok("schema", "register", subject, files.write(name, schema))


def test_a_diff_of_versions_and_of_a_file(registry_cli: CommandLine, files: SchemaFiles, subject: str) -> None:
    cli = registry_cli
    register(cli, files, subject, record(ID))
    alone = cli.run("schema", "diff", subject)
    assert alone.status == 2
    assert "one version" in alone.stderr
    register(cli, files, subject, record(ID, ("port", "string", "")), record(ID, ("harbour", "string", "")))
    lines = cli.ok("schema", "diff", subject).lines
    assert lines[:2] == [f"--- {subject} version 2", f"+++ {subject} version 3"]
    assert [each.strip() for each in lines if each[0] in "+-" and "name" in each] == [
        '-      "name": "port",',
        '+      "name": "harbour",',
    ]
    assert cli.ok("schema", "diff", subject, "1").lines[0] == f"--- {subject} version 1"
    (found,) = cli.ok("schema", "diff", subject, "1", "2", "--json").objects
    assert (found["from"], found["to"], found["is_same"]) == ("version 1", "version 2", False)
    # Spaces and the order of attributes are no difference.
    same = files.write("same.avsc", json.dumps(dict(reversed(record(ID, ("harbour", "string", "")).items())), indent=7))
    assert cli.ok("schema", "diff", subject, same).lines == [f"version 3 and {same} of {subject} are the same"]
    shown = cli.on_terminal(["schema", "diff", subject], TERM="xterm").stdout
    assert b"\033[31m-" in shown
    assert b"\033[32m+" in shown
    assert b"\033[" not in cli.on_terminal(["schema", "diff", subject], NO_COLOR="1").stdout
    assert cli.run("schema", "diff", subject, "9").status == 3
    assert cli.run("schema", "diff", subject, same, "2").status == 2
    assert cli.run("schema", "diff", subject, files.write("bad.avsc", '{"type": "none"}')).status == 1


def test_the_verdict_of_the_subjects_level_and_of_every_other(
    registry_cli: CommandLine, files: SchemaFiles, subject: str
) -> None:
    cli = registry_cli
    register(cli, files, subject, record(ID, PORT), record(ID))
    again = files.write("again.avsc", record(ID, PORT))
    refused = cli.run("schema", "compat", subject, again)
    assert refused.status == 5
    assert refused.lines[0] == f"{subject} does not take this schema (BACKWARD):"
    assert "version 2: The field 'port'" in refused.lines[1]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.lines[1]
    assert f"schema evolve {subject}" in refused.stderr
    ended = cli.run("schema", "compat", subject, again, "--all", "--json")
    assert ended.status == 5
    (found,) = ended.objects
    assert found["level"] == "BACKWARD"
    assert {level: found["levels"][level]["is_compatible"] for level in LEVELS} == {
        "NONE": True,
        "BACKWARD": False,
        "BACKWARD_TRANSITIVE": False,
        "FORWARD": True,
        "FORWARD_TRANSITIVE": True,
        "FULL": False,
        "FULL_TRANSITIVE": False,
    }
    # Version 1 has a port, and the last version has none: only the transitive level still asks for it.
    more = files.write("more.avsc", record(ID, ("total", "long", 0)))
    (found,) = cli.ok("schema", "compat", subject, more, "--all", "--json").objects
    assert found["levels"]["FORWARD"] == {"is_compatible": True, "reasons": []}
    (reason,) = found["levels"]["FORWARD_TRANSITIVE"]["reasons"]
    assert (reason["version"], reason["kind"]) == (1, "READER_FIELD_MISSING_DEFAULT_VALUE")
    assert "'port'" in reason["text"]
    assert "takes this schema (BACKWARD)" in cli.ok("schema", "compat", "none-value", more).lines[0]
    assert cli.run("schema", "compat", subject, files.write("bad.avsc", "{")).status in (1, 5)


@pytest.mark.parametrize(
    ("name", "old", "new", "step"),
    [
        ("v.avsc", record(ID), record(ID, PORT), "Add a default to the field 'port'"),
        ("v.json", CLOSED, CLOSED | {"required": ["id"]}, "Make the property 'id' optional."),
        ("v.proto", proto("int32 id = 1;"), proto("string id = 1;"), "the new number 2, and reserve 1"),
    ],
)
def test_the_nearest_change_passes(
    registry_cli: CommandLine, files: SchemaFiles, subject: str, name: str, old: object, new: object, step: str
) -> None:
    cli = registry_cli
    register(cli, files, subject, old, name=name)
    assert "as it is" in cli.ok("schema", "evolve", subject, files.write(name, old)).lines[0]
    refused = files.write(name, new)
    assert cli.run("schema", "register", subject, refused).status == 1
    better = str(files.directory / f"better{Path(name).suffix}")
    ended = cli.run("schema", "evolve", subject, refused, "--write", better)
    assert ended.status == 5
    assert step in ended.stdout.decode()
    assert "it would with 1 change:" in ended.lines
    assert any(line.startswith("+++ what passes") for line in ended.lines)
    (found,) = cli.run("schema", "evolve", subject, refused, "--json").objects
    assert not found["is_compatible"]
    assert found["reasons"]
    assert found["schema"]
    assert found["left"] == []
    cli.ok("schema", "register", subject, better)


def test_a_change_must_pass_with_every_version_that_counts(
    registry_cli: CommandLine, registry_url: str, files: SchemaFiles, subject: str
) -> None:
    """Version 1 has a field that version 2 lacks. A transitive level keeps its type, and so does the repair."""
    cli = registry_cli
    register(cli, files, subject, record(ID, PORT), record(ID))
    level = {"compatibility": "BACKWARD_TRANSITIVE"}
    SchemaApi(registry_url, 30.0).ask("PUT", "config", subject, body=level)
    new = files.write("new.avsc", record(ID, ("port", "int", 0)))
    better = str(files.directory / "better.avsc")
    ended = cli.run("schema", "evolve", subject, new, "--write", better)
    assert ended.status == 5
    assert "version 1:" in ended.stdout.decode()
    cli.ok("schema", "register", subject, better)


def test_no_way_is_said(registry_cli: CommandLine, files: SchemaFiles, subject: str) -> None:
    cli = registry_cli
    register(cli, files, subject, record(ID))
    other = cli.run("schema", "evolve", subject, files.write("v.json", CLOSED))
    assert other.status == 1
    assert "another type" in other.stderr
    assert cli.run("schema", "evolve", "none-value", files.write("v.avsc", record(ID))).status == 3
    assert cli.run("schema", "evolve", subject, files.write("bad.avsc", "{}")).status == 1
