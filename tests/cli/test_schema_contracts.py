"""Schemas in contracts: planned, applied, compared, checked with readers, exported."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import CommandLine
from tests.cli.group_reader import GroupReader, settle
from tests.cli.schema_files import proto, record

ID, PORT = ("id", "int"), ("port", "string")


class Contracts:
    """Contracts of a test with the files of their schemas, and the command that reads them."""

    def __init__(self, directory: Path, cli: CommandLine) -> None:
        self.directory = directory
        self.cli = cli

    def write(self, *schemas: Any, **more: Any) -> str:
        path = self.directory / "contract.yaml"
        path.write_text(json.dumps({"schemas": schemas, **more}))
        return str(path)

    def schema(self, name: str, content: Any) -> str:
        (self.directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    def steps(self, file: str) -> list[dict[str, Any]]:
        return [each for each in self.cli.ok("contract", "plan", file, "--json").objects if "action" in each]

    def apply(self, *schemas: Any, options: tuple[str, ...] = ()) -> str:
        file = self.write(*schemas)
        self.cli.ok("contract", "apply", file, "--yes", *options)
        assert self.steps(file) == []
        return file


@pytest.fixture
def topic(registry_cli: CommandLine) -> str:
    name = f"deals-{uuid.uuid4().hex[:8]}"
    registry_cli.ok("topic", "create", name)
    return name


@pytest.fixture
def contracts(tmp_path: Path, registry_cli: CommandLine) -> Contracts:
    return Contracts(tmp_path, registry_cli)


def versions(cli: CommandLine, subject: str) -> int:
    found = cli.ok("schema", "list", subject, "--json").objects
    return found[0]["version"] if found else 0


def test_a_schema_from_file_to_registry(contracts: Contracts, topic: str) -> None:
    cli, subject = contracts.cli, f"{topic}-value"
    first = {"topic": topic, "file": contracts.schema("order.avsc", record(ID)), "compatibility": "FULL"}
    file = contracts.write(first)
    (step,) = contracts.steps(file)
    assert (step["kind"], step["action"], step["name"]) == ("schemas", "create", f"subject {subject}")
    assert {"name": "compatibility", "before": "BACKWARD (the default)", "after": "FULL"} in step["details"]
    assert {"name": "schema", "before": None, "after": "order.avsc"} in step["details"]
    assert versions(cli, subject) == 0, "a plan changes nothing"
    text = cli.ok("contract", "apply", file, "--yes").stdout.decode()
    assert f"+ create subject {subject}\n" in text
    assert "schema: order.avsc" in text
    assert cli.ok("contract", "apply", file).lines == ["nothing to do: the cluster is as the contract says"]
    assert cli.ok("contract", "diff", file).lines[-1].startswith("no drift")
    contracts.schema("order.avsc", record(ID, ("port", "string", "")))
    (step,) = contracts.steps(file)
    assert '  +      "name": "port",' in cli.run("contract", "diff", file).lines
    assert {"name": "schema", "before": "version 1", "after": "order.avsc"} in step["details"]
    assert any(each["name"].startswith("+") and '"port"' in each["name"] for each in step["details"])
    cli.ok("contract", "apply", file, "--yes")
    assert versions(cli, subject) == 2
    # Spaces are no change.
    contracts.schema("order.avsc", json.dumps(record(ID, ("port", "string", "")), indent=3))
    assert contracts.steps(file) == []


def test_what_the_registry_would_refuse_is_refused_in_the_plan(contracts: Contracts, topic: str) -> None:
    cli = contracts.cli
    contracts.apply({"topic": topic, "schema": record(ID)})
    bad = contracts.write({"topic": topic, "schema": record(ID, PORT)})
    ended = cli.run("contract", "plan", bad)
    assert ended.status == 1
    assert "x cannot be done: not compatible under BACKWARD: The field 'port'" in ended.stdout.decode()
    assert "schema evolve" in ended.stderr
    assert cli.run("contract", "check", bad).status == 5
    assert cli.run("contract", "apply", bad, "--yes").status == 1
    assert versions(cli, f"{topic}-value") == 1
    # The level of the contract decides, not the one that is there: first both, then the same in steps.
    taken = contracts.write({"topic": topic, "schema": record(ID, PORT), "compatibility": "forward"})
    (step,) = contracts.steps(taken)
    assert step["refusal"] is None
    tight = contracts.write({"topic": topic, "schema": record(("id", "long")), "compatibility": "full"})
    assert "not compatible under FULL" in cli.run("contract", "plan", tight).stdout.decode()
    invalid = contracts.write({"topic": f"{topic}-b", "schema": {"type": "none"}})
    assert "none" in cli.run("contract", "plan", invalid).stderr
    missing = contracts.write({"topic": topic, "file": "none.avsc"})
    ended = cli.run("contract", "plan", missing)
    assert ended.status == 2
    assert "contract.yaml:1: cannot read" in ended.stderr


def test_a_weaker_promise_and_a_deletion_are_asked_for(contracts: Contracts, topic: str) -> None:
    cli, subject = contracts.cli, f"{topic}-value"
    entry = {"topic": topic, "schema": record(ID)}
    contracts.apply(entry | {"compatibility": "FULL_TRANSITIVE"})
    weaker = contracts.write(entry | {"compatibility": "BACKWARD"})
    (step,) = contracts.steps(weaker)
    assert step["destroys"] == [
        "the promise that a reader with the new schema reads what every earlier version wrote",
        "the promise that a reader with any earlier version reads what the new schema writes",
    ]
    assert cli.run("contract", "apply", weaker, "--yes").status == 2
    contracts.apply(entry | {"compatibility": "BACKWARD"}, options=("--allow-destroy",))
    gone = contracts.write({"subject": subject, "state": "absent"})
    (step,) = contracts.steps(gone)
    assert (step["action"], step["name"]) == ("delete", f"subject {subject}")
    assert cli.run("contract", "apply", gone, "--yes").status == 2
    assert versions(cli, subject) == 1
    cli.ok("contract", "apply", gone, "--yes", "--allow-destroy")
    assert versions(cli, subject) == 0
    assert contracts.steps(gone) == []


def test_drift_is_found_and_taken_back(contracts: Contracts, topic: str) -> None:
    """A version that another client registered, and a level that another client set."""
    cli, subject = contracts.cli, f"{topic}-value"
    file = contracts.apply({"topic": topic, "schema": record(ID), "compatibility": "BACKWARD"})
    newer = contracts.directory / "newer.avsc"
    newer.write_text(json.dumps(record(ID, ("port", "string", ""))))
    cli.ok("schema", "register", subject, str(newer))
    by_hand = contracts.directory / "by-hand.yaml"
    by_hand.write_text(json.dumps({"schemas": [{"topic": topic, "compatibility": "NONE"}]}))
    cli.ok("contract", "apply", str(by_hand), "--yes", "--allow-destroy")
    drift = cli.run("contract", "diff", file)
    assert drift.status == 5
    assert f"subject {subject} differs" in drift.lines
    assert {"  - compatibility: NONE", "  + compatibility: BACKWARD"} <= set(drift.lines)
    assert "  - last version: 2" in drift.lines
    (step,) = contracts.steps(file)
    assert any("version 2, newer than the contract" in each for each in step["destroys"])
    assert cli.run("contract", "apply", file, "--yes").status == 2
    cli.ok("contract", "apply", file, "--yes", "--allow-destroy")
    assert contracts.steps(file) == []
    assert versions(cli, subject) == 1


def test_a_subject_in_no_contract_is_named(contracts: Contracts, topic: str) -> None:
    cli = contracts.cli
    contracts.apply({"topic": topic, "of": "key", "schema": {"type": "string"}})
    file = contracts.apply({"topic": topic, "schema": record(ID)})
    assert f"in no contract: subject {topic}-key" in cli.ok("contract", "diff", file).lines


def test_a_reader_that_is_connected_now(contracts: Contracts, topic: str, bootstrap: str) -> None:
    """BACKWARD lets a field go that old readers need. The registry takes it, and a connected reader would break."""
    cli = contracts.cli
    contracts.apply({"topic": topic, "schema": record(ID, PORT)})
    without = contracts.write({"topic": topic, "schema": record(ID)})
    assert cli.ok("contract", "check", without).status == 0, "nothing reads it"
    with GroupReader(bootstrap, f"{topic}-billing", topic) as reader:
        settle([reader], until=lambda: reader.owned == [0])
        ended = cli.run("contract", "check", without)
        assert ended.status == 5
        words = f"group {topic}-billing reads {topic} now, and with version 1 of {topic}-value it cannot read"
        assert words in ended.stdout.decode()
        assert "'port'" in ended.stdout.decode()
        assert cli.run("contract", "apply", without, "--yes").status == 2, "what breaks a reader is asked for"
        wider = contracts.write({"topic": topic, "schema": record(ID, PORT, ("note", "string", ""))})
        assert cli.ok("contract", "check", wider).status == 0
        other = contracts.write({"subject": f"{topic}-other", "schema": record(ID)})
        assert cli.ok("contract", "check", other).status == 0


def test_schemas_that_refer_to_one_another_are_registered_in_order(contracts: Contracts, topic: str) -> None:
    """The names sort the other way round."""
    item = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
    order = record(ID, ("item", "Item"))
    reference = {"name": "Item", "subject": f"z-{topic}", "version": 1}
    first = {"subject": f"a-{topic}", "schema": order, "references": [reference]}
    contracts.apply(first, {"subject": f"z-{topic}", "schema": item})
    assert versions(contracts.cli, f"a-{topic}") == 1


def test_an_export_plans_to_nothing(contracts: Contracts, topic: str) -> None:
    cli, directory = contracts.cli, contracts.directory
    deep: Any = {"type": "array", "items": "int"}
    for _ in range(30):
        deep = {"type": "array", "items": deep}
    contracts.apply(
        {"topic": topic, "schema": record(ID, ("note", ["null", "string"], None)), "compatibility": "FULL"},
        {"topic": topic, "of": "key", "schema": {"type": "string"}},
        {"subject": f"deep-{topic}", "schema": json.dumps(deep)},
        {"subject": f"json-{topic}", "type": "json", "schema": {"type": "object", "maxProperties": 1e3}},
        {"subject": f"proto-{topic}", "type": "protobuf", "schema": proto("int32 id = 1;")},
    )
    cli.ok("contract", "export", f"{directory}/out/", "--topic", topic)
    exported = yaml.safe_load((directory / "out" / f"{topic}.yaml").read_text())
    assert [each["topic"] for each in exported["schemas"]] == [topic, topic]
    everything = directory / "all.yaml"
    everything.write_bytes(cli.ok("contract", "export").stdout)
    schemas = yaml.safe_load(everything.read_text())["schemas"]
    assert {f"deep-{topic}", f"json-{topic}", f"proto-{topic}"} <= {each.get("subject") for each in schemas}
    assert not [each for each in contracts.steps(str(everything)) if each["kind"] == "schemas"]
    lonely = CommandLine(cli.bootstrap).ok("contract", "export", "--topic", topic, "--registry", "http://127.0.0.1:1")
    assert "schemas are not exported" in lonely.stderr


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "needs topic: NAME, or subject: NAME"),
        ({"topic": "t"}, "nothing is said of t-value"),
        ({"topic": "t", "compatibility": "SOME"}, "'SOME' is none of NONE, BACKWARD"),
        ({"topic": "t", "schema": {}, "file": "f"}, "not both"),
        ({"subject": "s", "of": "key", "schema": {}}, "of (key or value) goes with topic"),
        ({"subject": "s", "schema": {}, "type": "THRIFT"}, "'THRIFT' is none of AVRO, JSON, PROTOBUF"),
        ({"subject": "s", "schema": {}, "references": [{"name": "n", "subject": "s"}]}, "needs version: N"),
        ({"subject": "s", "shema": {}}, "did you mean 'schema'?"),
        ({"subject": "s", "schema": 5}, "schema is a mapping, a list or a text"),
    ],
)
def test_what_is_no_contract(contracts: Contracts, entry: dict[str, Any], words: str) -> None:
    ended = contracts.cli.run("contract", "plan", contracts.write(entry))
    assert ended.status == 2
    assert words in ended.stderr
    assert "contract.yaml:1: " in ended.stderr


def test_a_registry_that_is_away(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text(json.dumps({"schemas": [{"topic": "t", "schema": record(ID)}]}))
    ended = cli.run("contract", "plan", str(path), "--registry", "http://127.0.0.1:1")
    assert ended.status == 4
    assert "registry serve" in ended.stderr
