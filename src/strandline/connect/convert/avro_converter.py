"""Confluent's AvroConverter: Avro payloads whose schemas are in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from strandline.connect.convert.avro_schemas import AvroSchemas, schema_of_node
from strandline.connect.convert.avro_values import from_avro, to_avro, without_logical_types
from strandline.connect.convert.registry_converter import PayloadDecoding, RegistryConverter
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import Schema
from strandline.schemas.avro.engine import AvroType
from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.engines import SchemaSource
from strandline.schemas.payloads.avro_reading import AvroToJson
from strandline.schemas.payloads.avro_writing import JsonToAvro


class AvroConverter(RegistryConverter):
    """Avro with schemas in a registry."""

    def source_of(self, topic: str, schema: Schema) -> SchemaSource:
        return SchemaSource("AVRO", json.dumps(AvroSchemas().of(schema), ensure_ascii=False, separators=(",", ":")))

    def encoder(self, schema: Schema, source: SchemaSource) -> Callable[[Any], bytes]:
        write, convert = JsonToAvro(without_logical_types(_node(source))).write, to_avro(schema)
        return lambda value: write(convert(value))

    def reader(self, source: SchemaSource) -> Callable[[bytes], PayloadDecoding]:
        node = _node(source)
        schema = schema_of_node(node)
        without_logical_types(node)
        read, convert = AvroToJson(node).read, from_avro(schema, node)
        found = PayloadDecoding(schema, lambda payload: convert(read(payload)))
        return lambda payload: found


def _node(source: SchemaSource) -> AvroNode:
    if source.type != "AVRO":
        raise RecordFailed(f"the schema is one of {source.type}, not of Avro")
    return AvroType().parse(source.text, dict(source.references)).node
