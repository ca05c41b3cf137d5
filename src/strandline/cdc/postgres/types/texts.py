"""Texts, bytes, arrays, hstore, points, and the types of PostGIS and pgvector."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode, urlsafe_b64encode
from binascii import unhexlify
from collections.abc import Callable
from typing import Any, Final

from strandline.cdc.postgres.types.form import ColumnForm, Convert, TypeUse, semantic
from strandline.connect.convert.java_text import double_text
from strandline.connect.schema import (
    BYTES,
    FLOAT64,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    ConnectType,
    Schema,
    SchemaField,
    map_of,
)

UUID: Final = "io.debezium.data.Uuid"
_OPTIONAL_INT32: Final = Schema(ConnectType.INT32, optional=True)
_INT16: Final = Schema(ConnectType.INT16)
_POINT: Final = Schema(
    ConnectType.STRUCT,
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
    fields=(
        SchemaField("x", FLOAT64),
        SchemaField("y", FLOAT64),
        SchemaField("wkb", OPTIONAL_BYTES),
        SchemaField("srid", _OPTIONAL_INT32),
    ),
)
_SPARSE: Final = Schema(
    ConnectType.STRUCT,
    name="io.debezium.data.SparseDoubleVector",
    version=1,
    doc="Sparse double vector",
    fields=(SchemaField("dimensions", _INT16), SchemaField("vector", map_of(_INT16, FLOAT64))),
)
_BRACKET: Final = ord("[")
_WKB_POINT: Final = struct.Struct("<BIdd")
_WKB_SRID: Final = 0x20000000
"""The flag of the geometry's type that an SRID follows."""
_PAIR: Final = re.compile(r'"((?:[^"\\]++|\\.)*+)"=>(?:NULL|"((?:[^"\\]++|\\.)*+)")', re.DOTALL)
"""A pair of an hstore. Its quantifiers are possessive, because the places to go back to in a large text fill memory."""
_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_ENCODINGS: Final[dict[str, Callable[[bytes], str]]] = {
    "base64": lambda raw: b64encode(raw).decode(),
    "base64-url-safe": lambda raw: urlsafe_b64encode(raw).decode(),
    "hex": bytes.hex,
}


def text(name: str | None = None) -> Callable[[TypeUse], ColumnForm]:
    """Return what makes the form of a text, plain or with the name of one of Debezium's types."""
    form = ColumnForm(STRING if name is None else semantic(ConnectType.STRING, name), bytes.decode)
    return lambda _: form


class UnknownLabel(LookupError):
    """A value of an enum has a label that the catalogue did not have when it was read."""

    def __init__(self, enum: int, label: str) -> None:
        super().__init__(f"the label {label!r} is not known")
        self.enum = enum
        self.label = label


def enum(oid: int, labels: tuple[str, ...]) -> ColumnForm:
    """Return the form of an enum. A new label does not make the stream describe its tables again."""
    known = {each.encode(): each for each in labels}

    def convert(value: bytes) -> str:
        label = known.get(value)
        if label is None:
            raise UnknownLabel(oid, bytes(value).decode())
        return label

    return ColumnForm(semantic(ConnectType.STRING, "io.debezium.data.Enum", allowed=",".join(labels)), convert)


def binary(use: TypeUse) -> ColumnForm:
    """Return the form of bytea."""
    encode = _ENCODINGS.get(use.settings.binary)
    if encode is None:
        return ColumnForm(BYTES, _from_hex)
    if use.settings.binary == "hex":
        return ColumnForm(STRING, lambda value: value[2:].decode())
    return ColumnForm(STRING, lambda value: encode(_from_hex(value)), encode(use.settings.placeholder_bytes))


def unknown(use: TypeUse) -> ColumnForm:
    """Return the form of a type that Debezium does not know: the bytes of its text."""
    encode = _ENCODINGS.get(use.settings.binary)
    return ColumnForm(BYTES, bytes) if encode is None else ColumnForm(STRING, encode)


def geometric(use: TypeUse) -> ColumnForm:
    """Return the form of a shape, such as a box: that of an unknown type, with numbers as Java prints them."""
    form = unknown(use)

    def convert(value: bytes) -> Any:
        return form.convert(_NUMBER.sub(lambda found: double_text(float(found[0])).encode(), value))

    return ColumnForm(form.schema, convert)


def _from_hex(value: bytes) -> bytes:
    return unhexlify(value[2:])


def hstore(use: TypeUse) -> ColumnForm:
    """Return the form of hstore: JSON in a text, or a map."""
    shown = use.settings.placeholder_bytes.decode(errors="replace")
    if use.settings.hstore == "map":
        return ColumnForm(map_of(STRING, OPTIONAL_STRING), hstore_pairs)
    schema = semantic(ConnectType.STRING, "io.debezium.data.Json")
    return ColumnForm(schema, lambda value: _json(hstore_pairs(value)), _json({shown: shown}))


def hstore_pairs(value: bytes) -> dict[str, str | None]:
    """Return keys and values of an hstore."""
    return {
        _unescaped(found[1]): None if found[2] is None else _unescaped(found[2])
        for found in _PAIR.finditer(value.decode())
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _unescaped(quoted: str) -> str:
    """Return what PostgreSQL quoted: a backslash stands before each quote and each backslash. No text holds a NUL."""
    if "\\" not in quoted:
        return quoted
    return quoted.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\")


def point(use: TypeUse) -> ColumnForm:
    """Return the form of a point."""
    return ColumnForm(_POINT, _point)


def _point(value: bytes) -> dict[str, Any]:
    x, y = map(float, value[1:-1].split(b","))
    return {"x": x, "y": y, "wkb": _WKB_POINT.pack(1, 1, x, y), "srid": None}


def geometry(name: str, doc: str) -> Callable[[TypeUse], ColumnForm]:
    """Return what makes the form of a type of PostGIS, which prints EWKB in hex."""
    schema = Schema(
        ConnectType.STRUCT,
        optional=True,
        name=name,
        version=1,
        doc=doc,
        fields=(SchemaField("wkb", BYTES), SchemaField("srid", _OPTIONAL_INT32)),
    )
    return lambda use: ColumnForm(schema, _geometry, {"wkb": use.settings.placeholder_bytes, "srid": None})


def _geometry(value: bytes) -> dict[str, Any]:
    raw = unhexlify(value)
    order = "<" if raw[0] else ">"
    (kind,) = struct.unpack_from(f"{order}I", raw, 1)
    srid = struct.unpack_from(f"{order}i", raw, 5)[0] if kind & _WKB_SRID else None
    return {"wkb": raw, "srid": srid}


def vector(name: str, kind: ConnectType) -> Callable[[TypeUse], ColumnForm]:
    """Return what makes the form of a vector of pgvector."""
    form = ColumnForm(Schema(ConnectType.ARRAY, name=name, version=1, value_schema=Schema(kind)), _vector)
    return lambda _: form


def _vector(value: bytes) -> list[float]:
    return list(map(float, value[1:-1].split(b",")))


def sparse_vector(use: TypeUse) -> ColumnForm:
    """Return the form of a sparse vector of pgvector, such as {1:0.5,3:2}/5."""
    return ColumnForm(_SPARSE, _sparse_vector, {"dimensions": 0, "vector": {}})


def _sparse_vector(value: bytes) -> dict[str, Any]:
    elements, _, dimensions = value.partition(b"/")
    pairs = (each.split(b":") for each in elements[1:-1].split(b",") if each)
    return {"dimensions": int(dimensions), "vector": {int(index): float(number) for index, number in pairs}}


def array_of(convert: Convert, delimiter: str) -> Convert:
    """Return the converter of an array. Elements of all dimensions come in one list, because a schema has only one."""
    separator = delimiter.encode()
    element = re.compile(rb'"((?:[^"\\]++|\\.)*+)"|([^{}"' + re.escape(separator) + rb"]++)", re.DOTALL)

    def read(value: bytes) -> list[Any]:
        if value[0] == _BRACKET:
            # Bounds that are not 1 stand before the elements, as in [0:1]={a,b}.
            value = value[value.index(b"=") + 1 :]
        body = value[1:-1]
        if not body:
            return []
        if b'"' not in body and b"{" not in body:
            parts = body.split(separator)
            if b"NULL" in body:
                return [None if each == b"NULL" else convert(each) for each in parts]
            return list(map(convert, parts))
        found: list[Any] = []
        for match in element.finditer(body):
            if match.lastindex == 1:
                quoted = match[1]
                if b"\\" in quoted:
                    quoted = quoted.replace(b"\\\\", b"\0").replace(b"\\", b"").replace(b"\0", b"\\")
                found.append(convert(quoted))
            else:
                found.append(None if match[2] == b"NULL" else convert(match[2]))
        return found

    return read
