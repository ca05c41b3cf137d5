"""Schemas as a registry keeps them, put into the topic `_schemas` without one, and values that have their ids.

`tests/registry` runs the registry itself. Here what counts is what readers make of the topic, and a process less.
"""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import fastavro
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from strandline.schemas.records import SchemaContent, SchemaVersion, schema_record

_ids: dict[str, Iterator[int]] = {}


class SchemaDesk:
    """Registers schemas in a cluster. No other process does."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._versions: Counter[str] = Counter()
        if bootstrap not in _ids:
            _ids[bootstrap] = itertools.count(1)
            topic = NewTopic("_schemas", 1, 1, config={"cleanup.policy": "compact"})
            try:
                admin = AdminClient({"bootstrap.servers": bootstrap})
                admin.create_topics([topic])["_schemas"].result(60)
            except KafkaException as error:
                # A registry has made it.
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise

    def register(self, subject: str, schema: Any, *, kind: str = "AVRO") -> int:
        """Register a schema as the newest version of a subject, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self._versions[subject] += 1
        version = SchemaVersion(subject, self._versions[subject], next(_ids[self.bootstrap]), SchemaContent(kind, text))
        record = schema_record(version)
        self._producer.produce("_schemas", key=record.key, value=record.value, partition=0)
        assert self._producer.flush(60) == 0
        return version.id

    def send(self, topic: str, *values: bytes | None, key: str | None = None) -> None:
        for value in values:
            self._producer.produce(topic, key=key, value=value)
        assert self._producer.flush(60) == 0


def avro_value(schema_id: int, schema: Any, row: dict[str, Any]) -> bytes:
    """Return a value as Confluent's serializers write it."""
    out = io.BytesIO()
    out.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return out.getvalue()


def record_schema(name: str, *fields: Any) -> dict[str, Any]:
    """Return a record of fields, each (name, type), (name, type, default) or a whole field."""
    found = []
    for each in fields:
        if isinstance(each, dict):
            found.append(each)
        else:
            found.append({"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}))
    return {"type": "record", "name": name, "fields": found}
