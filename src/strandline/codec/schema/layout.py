"""Sizes and struct codes of Kafka's types, and what a field looks like in one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.codec.message import Field, Message

# Everything is big-endian. A UUID travels as 16 raw bytes.
FIXED_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
STRING_BYTES_MAX = 0x7FFF
"""Kafka keeps to this limit in flexible versions too, where the length would have room for more."""


def is_array(field: Field) -> bool:
    return field.kafka_type.startswith("[]")


def element_type(field: Field) -> str:
    return field.kafka_type.removeprefix("[]")


def is_flexible(cls: type[Message], version: int) -> bool:
    return version >= cls.FLEXIBLE_FROM


def is_compact(cls: type[Message], field: Field, version: int) -> bool:
    return version >= cls.FLEXIBLE_FROM and not field.plain


def plain_fields(cls: type[Message], version: int) -> list[Field]:
    """Return the fields that stand in the body itself, in order."""
    return [field for field in cls.FIELDS if field.present(version) and field.tag is None]


def tagged_fields(cls: type[Message], version: int) -> list[Field]:
    """Return the fields of the tagged section at the end, in the order of their tags."""
    fields = [field for field in cls.FIELDS if field.present(version) and field.tag is not None]
    return sorted(fields, key=lambda field: field.tag or 0)


def struct_of(field: Field) -> type[Message]:
    assert field.struct is not None, f"{field.name} is no struct"
    return field.struct


def null_marker(field: Field) -> int:
    """Return the byte that says that a nullable struct is null; 1 says that it follows.

    In the body Kafka writes -1. In a tagged field it writes 0, and its reader takes the byte for a varint there.
    """
    return -1 if field.tag is None else 0


def size_bytes_min(cls: type[Message], version: int) -> int:
    """Return the fewest bytes one struct can take: what a count is multiplied with before it is believed."""
    size = sum(_field_bytes_min(cls, field, version) for field in plain_fields(cls, version))
    return size + 1 if is_flexible(cls, version) else size


def element_bytes_min(cls: type[Message], field: Field, version: int) -> int:
    """Return the same for one element of an array."""
    element = element_type(field)
    if element == "struct":
        return size_bytes_min(struct_of(field), version)
    if element in FIXED_SIZES:
        return FIXED_SIZES[element]
    return _length_bytes(element, compact=is_compact(cls, field, version))


def element_weight(field: Field) -> int:
    """Return how many objects one element is charged for: itself and each list and struct in it.

    Fields that the version does not carry count too, because their empty lists are made all the same.
    """
    if element_type(field) != "struct":
        return 1
    parts = struct_of(field).FIELDS
    return 1 + sum(1 if is_array(part) else element_weight(part) for part in parts if part.default == ())


def _field_bytes_min(cls: type[Message], field: Field, version: int) -> int:
    if is_array(field):
        return _length_bytes("array", compact=is_compact(cls, field, version))
    if field.kafka_type in FIXED_SIZES:
        return FIXED_SIZES[field.kafka_type]
    if field.kafka_type == "struct":
        return 1 if field.nullable(version) else size_bytes_min(struct_of(field), version)
    return _length_bytes(field.kafka_type, compact=is_compact(cls, field, version))


def _length_bytes(kind: str, *, compact: bool) -> int:
    if compact:
        return 1
    return 2 if kind == "string" else 4
