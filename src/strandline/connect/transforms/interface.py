"""What transforms and predicates are, and what the stock ones have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from strandline.connect.config import Config, option
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import ConnectType, Schema, SchemaField

Side = Literal["key", "value"]

REPLACE_NULLS_DOC: Final = (
    "Whether to replace fields that have a default value and that are null to the default value. "
    "When set to true, the default value is used, otherwise null is used."
)


class Transform:
    """Base of transforms."""

    Config: ClassVar[type[Config]] = Config

    def __init__(self, config: Any) -> None:
        self.config = config

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return the record as it goes on; None drops it. Raise RecordFailed if it cannot be transformed."""
        raise NotImplementedError


class SidedTransform(Transform):
    """Base of transforms that change the key or the value."""

    purpose: ClassVar[str] = ""
    """What messages say it was about to do."""

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config)
        self._is_key = side == "key"

    def _taken(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        return (record.key_schema, record.key) if self._is_key else (record.value_schema, record.value)

    def _with(self, record: ConnectRecord, schema: Schema | None, value: Any) -> ConnectRecord:
        if self._is_key:
            return record.with_(key_schema=schema, key=value)
        return record.with_(value_schema=schema, value=value)

    def _map(self, value: Any, record: ConnectRecord) -> Mapping[str, Any]:
        return required_map(value, self.purpose, record)

    def _struct(self, schema: Schema, value: Any, record: ConnectRecord) -> Mapping[str, Any]:
        return required_struct(schema, value, self.purpose, record)


class Predicate:
    """Base of predicates: whether a transform applies to a record."""

    Config: ClassVar[type[Config]] = Config

    def __init__(self, config: Any) -> None:
        self.config = config

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the predicate holds for a record."""
        raise NotImplementedError


class ReplaceNullsConfig(Config):
    """Settings of transforms that read fields with defaults."""

    replace_null_with_default: bool = option(REPLACE_NULLS_DOC, default=True)


def required_map(value: Any, purpose: str, record: ConnectRecord) -> Mapping[str, Any]:
    """Return a value without a schema that has fields. Raise RecordFailed if it has none."""
    if not isinstance(value, dict):
        raise RecordFailed(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {type_name(value)}", record
        )
    return value


def required_struct(schema: Schema, value: Any, purpose: str, record: ConnectRecord) -> Mapping[str, Any]:
    """Return a value that is a struct. Raise RecordFailed if it is none."""
    if not isinstance(value, dict) or schema.kind is not ConnectType.STRUCT:
        raise RecordFailed(f"Only Struct objects supported for [{purpose}], found: {type_name(value)}", record)
    return value


def type_name(value: Any) -> str:
    """Return what messages call the type of a value."""
    return "null" if value is None else type(value).__name__


def field_value(struct: Mapping[str, Any], field: SchemaField, *, with_default: bool) -> Any:
    """Return the value of a field; its default if it is null and `with_default`."""
    found = struct.get(field.name)
    return field.schema.default if found is None and with_default else found


def same_basics(schema: Schema, fields: tuple[SchemaField, ...]) -> Schema:
    """Return a struct's schema with other fields: name, version, doc and parameters stay, optional and default go."""
    return Schema(ConnectType.STRUCT, False, schema.name, schema.version, schema.doc, None, schema.parameters, fields)


def non_empty(name: str, value: list[str]) -> list[tuple[str, str]]:
    """Return the error of a list that must have an element."""
    if value:
        return []
    return [(name, f"Configuration '{name}' must not be empty. Valid values include: any non-empty value")]


def wrong_empty_text(value: str | None) -> str | None:
    """Return what is wrong with a text that must have a character."""
    return "String must be non-empty" if value == "" else None
