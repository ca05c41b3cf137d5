"""What the converters with a schema registry have in common: Confluent's wire format, subjects and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import Password, option
from strandline.connect.convert.interface import SCHEMAS_KEPT_MAX, Converter, SchemaCache
from strandline.connect.convert.logical import is_number
from strandline.connect.convert.registry_client import RegistryClient
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import BOOLEAN, BYTES, FLOAT64, INT64, STRING, Schema
from strandline.schemas.engines import SchemaSource
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import split_payload, with_prefix
from strandline.schemas.types import InvalidSchema

_PLAIN_SCHEMAS: Final = ((bool, BOOLEAN), (str, STRING), (float, FLOAT64), (bytes, BYTES))


class RegistryConfig(BaseConfig):
    """Settings of converters with a registry."""

    schema_registry_url: list[str] = option(
        "URLs of the schema registry; the next one is tried if one does not answer.", importance="HIGH"
    )
    auto_register_schemas: bool = option("Register the schemas of records that are written.", default=True)
    use_latest_version: bool = option(
        "Write records with the newest schema of the subject, if schemas are not registered automatically.",
        default=False,
        importance="LOW",
    )
    basic_auth_credentials_source: str = option(
        "Where the name and password come from: URL or USER_INFO.",
        default="URL",
        choices=("URL", "USER_INFO"),
    )
    basic_auth_user_info: Password | None = option(
        "The user, as name:password, if the source is USER_INFO.", default=None
    )

    def check_all(self) -> list[tuple[str, str]]:
        name = "schema.registry.url"
        return [] if any(self.schema_registry_url) else [(name, f'Missing required configuration "{name}".')]


@dataclass(frozen=True)
class ValueEncoding:
    """How values of one Connect schema are written."""

    schema_id: int
    encode: Callable[[Any], bytes]


@dataclass(frozen=True)
class PayloadDecoding:
    """How payloads of one registered schema are read."""

    schema: Schema | None
    decode: Callable[[bytes], Any]


class RegistryConverter(Converter):
    """Base of converters with a registry. Requests block, but only for a schema that is new."""

    Config = RegistryConfig

    def __init__(self, config: Any, *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        user = config.basic_auth_user_info if config.basic_auth_credentials_source == "USER_INFO" else None
        self._registry = RegistryClient(config.schema_registry_url, user)
        self._written: dict[str, SchemaCache[ValueEncoding]] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._readers: dict[int | str, Callable[[bytes], PayloadDecoding]] = {}

    def close(self) -> None:
        self._registry.close()

    # What each schema type does

    def source_of(self, topic: str, schema: Schema) -> SchemaSource:
        """Return a Connect schema as one of the registry's."""
        raise NotImplementedError

    def encoder(self, schema: Schema, source: SchemaSource) -> Callable[[Any], bytes]:
        """Return a function that encodes values of a Connect schema. `source` is what is registered."""
        raise NotImplementedError

    def reader(self, source: SchemaSource) -> Callable[[bytes], PayloadDecoding]:
        """Return a function that finds how to read a payload, by its first bytes."""
        raise NotImplementedError

    # Writing

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if schema is None:
            schema = _schema_of(value)
        written = self._written.get(topic)
        if written is None:
            written = self._written[topic] = SchemaCache(lambda each: self._make_written(topic, each))
        try:
            found = written(schema)
            return with_prefix(found.schema_id, found.encode(value))
        except (PayloadFailed, InvalidSchema, ValueError, RecursionError) as error:
            raise RecordFailed(f"a value cannot be written with its schema: {error}") from None

    def subject(self, topic: str) -> str:
        """Return the subject of a topic's keys or values."""
        return f"{topic}-{'key' if self.is_key else 'value'}"

    def _make_written(self, topic: str, schema: Schema) -> ValueEncoding:
        subject = self.subject(topic)
        if self.config.use_latest_version and not self.config.auto_register_schemas:
            schema_id, source = self._registry.latest(subject)
            return ValueEncoding(schema_id, self.encoder(schema, source))
        source = self.source_of(topic, schema)
        known = self._ids.get((subject, source.text))
        if known is None:
            ask = self._registry.register if self.config.auto_register_schemas else self._registry.find
            if len(self._ids) >= SCHEMAS_KEPT_MAX:
                self._ids.clear()
            known = self._ids[subject, source.text] = ask(subject, source)
        return ValueEncoding(known, self.encoder(schema, source))

    # Reading

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        named = split_payload(data)
        if named is None:
            raise RecordFailed("Unknown magic byte! The record names no schema of a registry.")
        schema_id, payload = named
        try:
            found = self._reader_of(schema_id, topic)(payload)
            return found.schema, found.decode(payload)
        except (PayloadFailed, InvalidSchema, RecursionError) as error:
            raise RecordFailed(f"a record with the schema {schema_id} cannot be read: {error}") from None

    def _reader_of(self, schema_id: int | str, topic: str) -> Callable[[bytes], PayloadDecoding]:
        found = self._readers.get(schema_id)
        if found is None:
            if len(self._readers) >= SCHEMAS_KEPT_MAX:
                self._readers.clear()
            source = self._registry.schema_by_id(schema_id, self.subject(topic))
            found = self._readers[schema_id] = self.reader(source)
        return found


def _schema_of(value: Any) -> Schema:
    """Return the schema of a single value that has none."""
    if is_number(value):
        return INT64
    found = next((schema for kind, schema in _PLAIN_SCHEMAS if isinstance(value, kind)), None)
    if found is None:
        raise RecordFailed(
            f"a value of type {type(value).__name__} has no schema to register: let the source give one, or use "
            "JsonConverter with schemas.enable=false"
        )
    return found
