"""Records with schemas: `produce --schema`, `consume --decode`, and whether what a topic holds still decodes."""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, schema_registry
from confluent_kafka.schema_registry import avro
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.cli.conftest import CommandLine
from tests.cli.schema_files import SchemaFiles, proto, record

from strandline.cli.common.failures import NotFound
from strandline.cli.common.progress import Progress
from strandline.cli.records.record import ReadRecord
from strandline.cli.schema.data_check import SCHEMAS_MAX, DataCheck
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import SchemaSources

MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
ORDER = record(("id", "int"), ("total", ["null", "double"], None), ("at", MOMENT))
ROW = {"id": 1, "total": 2.5, "at": "2026-03-01T12:00:00.000Z"}
JSON_ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
PROTO_ORDER = proto("int32 id = 1; repeated string tags = 2;")


@pytest.fixture
def files(tmp_path: Path) -> SchemaFiles:
    return SchemaFiles(tmp_path)


@pytest.fixture
def topic(registry_cli: CommandLine) -> str:
    name = f"payloads-{uuid.uuid4().hex[:8]}"
    registry_cli.ok("topic", "create", name, "--partitions", "2")
    return name


def rows(*values: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in values)


def write_bytes(bootstrap: str, topic: str, *values: bytes | None, partition: int = 0, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value=value, partition=partition, **more)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("name", "schema", "row", "bad", "reason"),
    [
        ("order.avsc", ORDER, ROW, ROW | {"total": "x"}, "at total: 'x' is no double"),
        ("order.json", JSON_ORDER, {"id": 7}, {"id": "7"}, "at id: "),
        ("order.proto", PROTO_ORDER, {"id": 3, "tags": ["a"]}, {"id": 3, "tag": []}, "tag"),
    ],
)
def test_rows_go_in_and_come_out(
    registry_cli: CommandLine, files: SchemaFiles, topic: str, name: str, schema: Any, row: Any, bad: Any, reason: str
) -> None:
    cli, file = registry_cli, files.write(name, schema)
    unknown = cli.run("produce", topic, "--schema", file, stdin=rows(row))
    assert unknown.status == 3
    assert "--register" in unknown.stderr
    cli.ok("produce", topic, "--schema", file, "--register", "-p", "0", stdin=rows(row))
    refused = cli.run("produce", topic, "--schema", f"{topic}-value", "-p", "0", stdin=rows(row, bad, row))
    assert refused.status == 1
    assert "stdin, line 2: " in refused.stderr
    assert reason in refused.stderr
    shown = cli.ok("consume", topic, "--decode").lines
    assert [json.loads(line) for line in shown] == [row, row], "the row before the bad one, and none behind it"
    (first, _) = cli.ok("consume", topic, "--decode", "--json").objects
    assert first["value"] == row
    (version,) = cli.ok("schema", "list", f"{topic}-value", "--json").objects
    assert first["value_schema_id"] == version["id"]
    copied = cli.ok("consume", topic, "--decode", "--json").stdout
    cli.ok("produce", topic, "--schema", f"{topic}-value", "--from-json", stdin=copied)
    raw = [each.get("value_base64") or each["value"] for each in cli.ok("consume", topic, "--json").objects]
    assert len(raw) == 4
    assert len(set(raw)) == 1, "what was decoded is encoded to the same bytes"
    assert cli.ok("schema", "check", "--against-data", topic).lines[-1] == f"every record of {topic} decodes: 4 records"


def test_filters_and_formats_see_the_decoded_value(registry_cli: CommandLine, files: SchemaFiles, topic: str) -> None:
    cli, file = registry_cli, files.write("order.avsc", ORDER)
    data = rows(*(ROW | {"id": number} for number in range(5)))
    cli.ok("produce", topic, "--schema", file, "--register", "-K", "|", "-p", "0", stdin=data.replace(b"{", b"key|{"))
    ended = cli.ok("consume", topic, "--decode", "--where", "value.id>=3", "-F", r"%k %s\n")
    assert [json.loads(line.removeprefix("key ")) for line in ended.lines] == [ROW | {"id": 3}, ROW | {"id": 4}]
    cli.ok("produce", topic, "--schema", file, "-Z", "-p", "0", stdin=b"\n")
    assert cli.ok("consume", topic, "--decode", "--json").objects[-1]["value"] is None
    assert cli.run("produce", topic, "--schema", file, stdin=b"no json\n").status == 1
    assert cli.run("produce", topic, "--register", stdin=b"").status == 2
    assert cli.run("produce", topic, "--schema", file, "--message", "M", stdin=b"").status == 1
    assert cli.run("produce", f"{topic}-none", "--schema", file, "--register", stdin=b"").status == 3
    assert not cli.ok("schema", "list", f"{topic}-none", "--json").objects, "nothing was registered for a missing topic"


def test_what_cannot_be_decoded_is_shown_plainly(
    registry_cli: CommandLine, files: SchemaFiles, topic: str, bootstrap: str
) -> None:
    cli, file = registry_cli, files.write("order.avsc", ORDER)
    (made,) = cli.ok("schema", "register", f"{topic}-value", file, "--json").objects
    prefix = b"\0" + made["id"].to_bytes(4, "big")
    unknown = b"\0\x7f\xff\xff\xff" + b"\xfe\xff"
    write_bytes(bootstrap, topic, unknown, prefix + b"\x02", b"plain text", None, b"\0\0")
    lines = cli.ok("consume", topic, "--decode").lines
    assert lines[0].startswith("(not decoded: schema 2147483647: the registry has no such schema; 7 bytes: ")
    assert lines[1].startswith(f"(not decoded: schema {made['id']}: at total: the payload ends too early; 6 bytes: ")
    assert lines[2:4] == ["plain text", ""]
    ended = cli.ok("consume", topic, "--decode", "--json")
    assert "2 keys or values could not be decoded" in ended.stderr
    first, second, third, fourth, fifth = ended.objects
    assert first["value_schema_error"] == "the registry has no such schema"
    assert first["value_base64"]
    assert second["value_schema_id"] == made["id"]
    assert third["value"] == "plain text"
    assert "value_schema_id" not in third
    assert fourth["value"] is None
    assert fifth["value"] == "\0\0"
    away = cli.run("consume", topic, "--decode", "--registry", "http://127.0.0.1:1")
    assert away.status == 4
    assert "registry serve" in away.stderr


def test_every_record_that_does_not_decode_is_found(
    registry_cli: CommandLine, files: SchemaFiles, topic: str, bootstrap: str
) -> None:
    cli, file = registry_cli, files.write("order.avsc", ORDER)
    cli.ok("produce", topic, "--schema", file, "--register", "-p", "0", stdin=rows(*[ROW] * 3))
    cli.ok("produce", topic, "--schema", file, "-p", "1", stdin=rows(ROW))
    (made,) = cli.ok("schema", "list", f"{topic}-value", "--json").objects
    prefix = b"\0" + made["id"].to_bytes(4, "big")
    write_bytes(bootstrap, topic, prefix + b"\x02", None, b"\0\x7f\xff\xff\xffx", b"plain")
    write_bytes(bootstrap, topic, prefix + b"\x02\0\x02\x02", partition=1, key=prefix)
    ended = cli.run("schema", "check", "--against-data", topic, "--json")
    assert ended.status == 5
    by_schema = {each["schema"]: each for each in ended.objects if "records" in each and "schema" in each}
    assert by_schema[made["id"]] == {
        "topic": topic,
        "part": "value",
        "schema": made["id"],
        "subject": f"{topic}-value",
        "version": 1,
        "records": 6,
        "bad": 2,
        "reason": by_schema[made["id"]]["reason"],
    }
    assert (by_schema[2147483647]["bad"], by_schema[2147483647]["subject"]) == (1, None)
    assert (by_schema[None]["bad"], by_schema[None]["records"]) == (1, 1)
    by_partition = {each["partition"]: each for each in ended.objects if "partition" in each}
    assert (by_partition[0]["bad"], by_partition[0]["first_offset"]) == (3, 3)
    assert (by_partition[1]["bad"], by_partition[1]["first_offset"]) == (1, 1)
    assert "left behind" in by_partition[1]["reason"]
    assert ended.objects[-1] == {"topic": topic, "records": 9, "without_value": 1, "bad": 4, "decodes": False}
    shown = cli.run("schema", "check", "--against-data", topic)
    assert shown.lines[-1] == f"4 of 9 records of {topic} do not decode"
    with_keys = cli.run("schema", "check", "--against-data", topic, "-p", "1", "--keys", "--json").objects
    (only,) = [each for each in with_keys if "partition" in each and each["part"] == "key"]
    assert (only["partition"], only["first_offset"]) == (1, 1)
    assert cli.run("schema", "check", "--against-data", f"{topic}-none").status == 3
    assert cli.run("schema", "check").status == 2
    assert cli.run("schema", "check", f"{topic}-value").status == 2


def test_a_new_schema_is_checked_with_what_the_topic_holds(
    registry_cli: CommandLine, files: SchemaFiles, topic: str
) -> None:
    """The subject compares with its last version only. Records of an older one are still there."""
    cli, subject = registry_cli, f"{topic}-value"
    first = files.write("1.avsc", record(("id", "int"), ("port", "string")))
    cli.ok("produce", topic, "--schema", first, "--register", stdin=rows({"id": 1, "port": "x"}))
    cli.ok("schema", "register", subject, files.write("2.avsc", record(("id", "int"))))
    new = files.write("3.avsc", record(("id", "int"), ("port", "int", 0)))
    assert cli.ok("schema", "check", subject, new).status == 0
    ended = cli.run("schema", "check", subject, new, "--against-data", topic)
    assert ended.status == 5
    assert f"1 of 1 record of {topic} do not decode" in ended.lines[-1]
    assert "the file does not read it" in ended.stdout.decode()
    good = files.write("4.avsc", record(("id", "long"), ("port", ["string", "int"], "")))
    assert cli.ok("schema", "check", subject, good, "--against-data", topic).status == 0


def test_confluents_serializers_and_ours_read_one_another(
    registry_cli: CommandLine, registry_url: str, files: SchemaFiles, topic: str, bootstrap: str
) -> None:
    cli, schema = registry_cli, record(("id", "int"), ("note", ["null", "string"], None))
    context = SerializationContext(topic, MessageField.VALUE)
    with schema_registry.SchemaRegistryClient({"url": registry_url}) as client:
        payload = avro.AvroSerializer(client, json.dumps(schema))({"id": 5, "note": "x"}, context)
        by_guid = SerializationContext(topic, MessageField.VALUE, headers=[])
        settings = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
        bare = avro.AvroSerializer(client, json.dumps(schema), conf=settings)({"id": 6, "note": None}, by_guid)
        write_bytes(bootstrap, topic, payload)
        write_bytes(bootstrap, topic, bare, headers=by_guid.headers)
        found = cli.ok("consume", topic, "--decode", "--json").objects
        assert [each["value"] for each in found] == [{"id": 5, "note": "x"}, {"id": 6, "note": None}]
        cli.ok("produce", topic, "--schema", files.write("o.avsc", schema), "-p", "1", stdin=rows({"id": 7}))
        (ours,) = cli.ok("consume", topic, "-p", "1", "--json").objects
        content = ours["value"].encode() if "value" in ours else base64.b64decode(ours["value_base64"])
        assert avro.AvroDeserializer(client)(content, context) == {"id": 7, "note": None}
    assert cli.ok("schema", "check", "--against-data", topic).status == 0


class NoSchemas(SchemaApi):
    """A registry without schemas."""

    def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        raise NotFound("there is none")


def test_counts_stay_few_whatever_a_topic_holds() -> None:
    """Bytes that are no schema's id look like one: as many ids as records."""
    bar = Progress("checking", total=None, unit="records")
    check = DataCheck(SchemaSources(NoSchemas("http://127.0.0.1:1", 1.0)), None, ("value",), bar)
    total = SCHEMAS_MAX + 50
    contents = [b"\0" + number.to_bytes(4, "big") + b"x" for number in range(total)]
    check.take([ReadRecord("t", 0, 7 + number, 0, None, each, []) for number, each in enumerate(contents)])
    assert len(check.by_schema) == SCHEMAS_MAX + 1
    assert check.by_schema["value", None].bad == 50
    assert check.bad_records == check.by_partition["value", 0].bad == total
    assert check.by_partition["value", 0].first_offset == 7
