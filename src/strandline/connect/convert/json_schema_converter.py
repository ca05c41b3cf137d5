"""Confluent's JsonSchemaConverter: JSON payloads whose JSON Schemas are in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from strandline.connect.config import option
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.json_converter import is_decimal_format
from strandline.connect.convert.json_reading import JsonReading, Reader, parsed
from strandline.connect.convert.json_schema_mapping import JsonSchemas, schema_of_document
from strandline.connect.convert.json_writing import JsonWriting, Writer, plain_text, wrong_type
from strandline.connect.convert.registry_converter import PayloadDecoding, RegistryConfig, RegistryConverter
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import ConnectType, Schema
from strandline.schemas.engines import SchemaSource


class _EntryWriting(JsonWriting):
    """Maps with other keys than strings are lists of objects with a key and a value."""

    def _map(self, schema: Schema) -> Writer:
        if (
            schema.key_schema is not None
            and schema.key_schema.kind is ConnectType.STRING
            and not schema.key_schema.optional
        ):
            return super()._map(schema)
        write_key = plain_text if schema.key_schema is None else self._made(schema.key_schema)
        write = plain_text if schema.value_schema is None else self._made(schema.value_schema)

        def entries(value: Any) -> str:
            if not isinstance(value, dict):
                raise wrong_type("MAP", value)
            shown = (f'{{"key":{write_key(key)},"value":{write(each)}}}' for key, each in value.items())
            return f"[{','.join(shown)}]"

        return entries


class _EntryReading(JsonReading):
    """The same, backwards."""

    def _map(self, schema: Schema) -> Reader:
        pairs = super()._map(schema)
        assert schema.key_schema is not None
        if schema.key_schema.kind is ConnectType.STRING and not schema.key_schema.optional:
            return pairs

        def entries(value: Any) -> Any:
            if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
                raise RecordFailed("Maps with non-string fields should be encoded as JSON array of objects")
            return pairs([[each.get("key"), each.get("value")] for each in value])

        return entries


class JsonSchemaConverter(RegistryConverter):
    """JSON with schemas in a registry."""

    class Config(RegistryConfig):
        decimal_format: str = option(
            "How decimals are written: BASE64 or NUMERIC.", default="BASE64", importance="LOW", check=is_decimal_format
        )

    def __init__(self, config: Any, *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._has_numbers = config.decimal_format.upper() == "NUMERIC"
        self._writing = _EntryWriting(numeric_decimals=self._has_numbers, replace_nulls=True)
        self._reading = _EntryReading(replace_nulls=True)
        self._texts: SchemaCache[str] = SchemaCache(self._text)

    def _text(self, schema: Schema) -> str:
        made = JsonSchemas(self._writing, numeric_decimals=self._has_numbers).of(schema)
        return json.dumps(made, ensure_ascii=False, separators=(",", ":"))

    def source_of(self, topic: str, schema: Schema) -> SchemaSource:
        return SchemaSource("JSON", self._texts(schema))

    def encoder(self, schema: Schema, source: SchemaSource) -> Callable[[Any], bytes]:
        write = self._writing.writer(schema)
        return lambda value: write(value).encode()

    def reader(self, source: SchemaSource) -> Callable[[bytes], PayloadDecoding]:
        if source.type != "JSON":
            raise RecordFailed(f"the schema is one of {source.type}, not of JSON Schema")
        schema = schema_of_document(source, lambda each, value: self._reading.reader(each)(value))
        exactly = self._reading.has_decimals(schema)
        read = self._reading.reader(schema)
        found = PayloadDecoding(schema, lambda payload: read(parsed(payload, exactly=exactly)))
        return lambda payload: found
