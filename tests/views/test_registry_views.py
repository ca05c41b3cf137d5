"""Views of topics whose values have schemas of a registry: typed columns, also as of a moment and after a change."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.schema_desk import SchemaDesk, avro_value, record_schema

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.views import Desk, ViewFailed, define

FIRST = record_schema("Person", ("name", "string"), ("born", {"type": "long", "logicalType": "timestamp-millis"}))
SECOND = record_schema(
    "Person",
    ("born", {"type": "long", "logicalType": "timestamp-millis"}),
    ("name", "string"),
    ("tags", {"type": "array", "items": "string"}, []),
    ("photo", "bytes", "\u00ff"),
)


def test_a_view_has_the_columns_of_the_newest_version(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic, 1, cleanup_policy="compact")
    desk = SchemaDesk(broker.bootstrap)
    view = define("people", topic, schema="registry", key=("id",))
    born = datetime(1815, 12, 10, tzinfo=UTC)
    with Desk(broker.bootstrap, directory=tmp_path) as session:
        session.add(view)
        with pytest.raises(ViewFailed, match=f"the registry has no subject {topic}-value"):
            session.query("select * from people")
        first = desk.register(f"{topic}-value", FIRST)
        desk.send(topic, avro_value(first, FIRST, {"name": "Ada", "born": born}), key="ada")
        desk.send(topic, b"bad", key="bad")
        answer = session.query("select * from people order by id")
        assert answer.columns == ["id", "name", "born"]
        assert answer.rows == [("ada", "Ada", born), ("bad", None, None)]
        session.snapshot("people")
        second = desk.register(f"{topic}-value", SECOND)
        row = {"name": "Bob", "born": born, "tags": ["x", "y"], "photo": b"\x00"}
        desk.send(topic, avro_value(second, SECOND, row), key="bob")
        found = session.query("select id, year(born), tags, photo from people order by id").rows
        assert found == [("ada", 1815, [], b"\xff"), ("bad", None, None, None), ("bob", 1815, ["x", "y"], b"\x00")]
        assert session.row("people", "bob") == {"id": "bob", **row}
        session.snapshot("people")
        assert session.query("select count(*) from people where name is not null").rows == [(2,)]
