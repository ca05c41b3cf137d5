"""From a column's type to its field: the schema and the converter are chosen here, once for a table's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.cdc.model import CapturedColumn
from strandline.cdc.postgres.types import numbers, texts, times
from strandline.cdc.postgres.types.catalog import PgType, TypeCatalog
from strandline.cdc.postgres.types.defaults import TYPES, default_of
from strandline.cdc.postgres.types.form import ColumnForm, Convert, TypeUse
from strandline.cdc.postgres.types.placeholders import placeholder_of
from strandline.cdc.postgres.types.settings import TypeSettings
from strandline.connect.schema import BOOLEAN, INT32, INT64, ConnectType, Schema, array

Maker = Callable[[TypeUse], ColumnForm]


def _always(schema: Schema, convert: Convert) -> Maker:
    form = ColumnForm(schema, convert)
    return lambda _: form


_PLAIN_TEXTS: Final = (
    *("text", "varchar", "bpchar", "char", "name", "inet", "cidr", "macaddr", "macaddr8"),
    *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
)
_BUILTIN: Final[Mapping[str, Maker]] = {
    "bool": _always(BOOLEAN, b"t".__eq__),
    "int2": _always(Schema(ConnectType.INT16), int),
    "int4": _always(INT32, int),
    "int8": _always(INT64, int),
    "oid": _always(INT64, int),
    "float4": _always(Schema(ConnectType.FLOAT32), float),
    "float8": _always(Schema(ConnectType.FLOAT64), float),
    "numeric": numbers.numeric,
    "money": numbers.money,
    "bit": numbers.bits,
    "varbit": numbers.bits,
    "bytea": texts.binary,
    "date": times.date,
    "time": times.time,
    "timetz": times.zoned_time,
    "timestamp": times.timestamp,
    "timestamptz": times.zoned_timestamp,
    "interval": times.interval,
    "uuid": texts.text(texts.UUID),
    "json": texts.text("io.debezium.data.Json"),
    "jsonb": texts.text("io.debezium.data.Json"),
    "xml": texts.text("io.debezium.data.Xml"),
    "tsvector": texts.text("io.debezium.data.Tsvector"),
    "point": texts.point,
    **dict.fromkeys(_PLAIN_TEXTS, texts.text()),
}
_EXTENSIONS: Final[Mapping[str, Maker]] = {
    "citext": texts.text(),
    "isbn": texts.text(),
    "hstore": texts.hstore,
    "ltree": texts.text("io.debezium.data.Ltree"),
    "geometry": texts.geometry("io.debezium.data.geometry.Geometry", "Geometry"),
    "geography": texts.geometry("io.debezium.data.geometry.Geography", "Geography"),
    "vector": texts.vector("io.debezium.data.DoubleVector", ConnectType.FLOAT64),
    "halfvec": texts.vector("io.debezium.data.FloatVector", ConnectType.FLOAT32),
    "sparsevec": texts.sparse_vector,
}
"""Types of extensions, which may be in any schema."""
_SHAPES: Final = frozenset(("box", "circle", "line", "lseg", "path", "polygon"))
"""Types that Debezium reads, but has no schema for."""
_ARRAYS_LEFT_OUT: Final = frozenset(("money", "name", "interval", "varbit", "xml", "point"))
"""Types whose arrays Debezium leaves out; here `include.unknown.datatypes` brings them, with their values."""


def captured_column(
    name: str,
    oid: int,
    modifier: int,
    *,
    is_optional: bool,
    default: str | None,
    catalog: TypeCatalog,
    settings: TypeSettings,
) -> CapturedColumn | None:
    """Return the column as it is captured; None if its type is left out.

    `modifier` is the column's `atttypmod`, `default` the text of its default expression. A type that the catalogue does
    not have is one that is left out: load the catalogue again before.
    """
    found, modifier = catalog.resolved(oid, modifier)
    use = TypeUse(name, modifier, is_optional, settings)
    form = _form(found, use, catalog)
    if form is None:
        return None
    schema = form.schema.as_optional() if is_optional else form.schema
    if default is not None and found is not None and found.oid == oid and _has_default(found):
        value = default_of(default, found.name, modifier, form.convert)
        if value is not None:
            schema = replace(schema, default=value)
    return CapturedColumn(name, schema, form.convert, _placeholder(form, settings))


def _has_default(of: PgType) -> bool:
    return bool(of.labels) or (of.is_builtin and of.name in TYPES)


def _placeholder(form: ColumnForm, settings: TypeSettings) -> Any:
    return form.placeholder if form.placeholder is not None else placeholder_of(form.schema, settings.placeholder_bytes)


def _form(of: PgType | None, use: TypeUse, catalog: TypeCatalog) -> ColumnForm | None:
    if of is not None and of.element:
        return _array_form(of, use, catalog)
    return _known(of, use) or (_unknown(of, use) if use.settings.include_unknown else None)


def _unknown(of: PgType | None, use: TypeUse) -> ColumnForm:
    return texts.geometric(use) if of is not None and of.is_builtin and of.name in _SHAPES else texts.unknown(use)


def _known(of: PgType | None, use: TypeUse) -> ColumnForm | None:
    if of is None:
        return None
    if of.kind == "e":
        return texts.enum(of.oid, of.labels)
    maker = None
    if of.is_builtin:
        maker = _BUILTIN.get(of.name)
    elif of.kind == "b":
        maker = _EXTENSIONS.get(of.name)
    return None if maker is None else maker(use)


def _array_form(of: PgType, use: TypeUse, catalog: TypeCatalog) -> ColumnForm | None:
    # Debezium takes a domain's array for one of an unknown type.
    element = catalog.get(of.element)
    each = replace(use, is_optional=True)
    form = _known(element, each)
    is_left_out = form is None or (element is not None and element.is_builtin and element.name in _ARRAYS_LEFT_OUT)
    if is_left_out and not use.settings.include_unknown:
        return None
    form = form or _unknown(element, each)
    convert = texts.array_of(form.convert, element.delimiter if element is not None else ",")
    placeholder = None if form.placeholder is None else [form.placeholder]
    return ColumnForm(array(form.schema.as_optional()), convert, placeholder)
