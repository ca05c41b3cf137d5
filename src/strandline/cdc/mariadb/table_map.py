"""Table maps: the binlog's description of a table, which comes before its rows.

    | table id (6) | flags (2) | length, database, 0 | length, table, 0 | count of columns | a type of each |
    | size, metadata of types | a bit for each column: may be NULL | fields of optional metadata: type, size, bytes |

With `binlog_row_metadata=FULL` the optional metadata has the columns' names, signs, character sets and labels, and the
primary key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from strandline.cdc.mariadb import row_values
from strandline.cdc.mariadb.charsets import BINARY, Decode, decoder
from strandline.cdc.mariadb.shapes import ColumnKind, ColumnShape, MariadbTableShape, ReadValue
from strandline.connect.failures import ConnectFailed


class ColumnCode(IntEnum):
    """Physical types of columns."""

    FLOAT = 4
    DOUBLE = 5
    DATE = 10
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    DECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_INTEGERS: Final[Mapping[int, tuple[ColumnKind, str]]] = {
    1: ("tinyint", "b"),
    2: ("smallint", "h"),
    3: ("int", "i"),
    8: ("bigint", "q"),
    9: ("mediumint", ""),
}
_OLD_TEMPORAL: Final = {7: "TIMESTAMP", 11: "TIME", 12: "DATETIME"}
_METADATA_SIZE: Final[Mapping[int, int]] = {
    ColumnCode.FLOAT: 1,
    ColumnCode.DOUBLE: 1,
    ColumnCode.VARCHAR: 2,
    ColumnCode.BIT: 2,
    ColumnCode.TIMESTAMP: 1,
    ColumnCode.DATETIME: 1,
    ColumnCode.TIME: 1,
    ColumnCode.BLOB_COMPRESSED: 1,
    ColumnCode.VARCHAR_COMPRESSED: 2,
    ColumnCode.DECIMAL: 2,
    ColumnCode.ENUM: 2,
    ColumnCode.SET: 2,
    ColumnCode.BLOB: 1,
    ColumnCode.VAR_STRING: 2,
    ColumnCode.STRING: 2,
    ColumnCode.GEOMETRY: 1,
}
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_GEOMETRY_TYPE, _KEY, _KEY_WITH_PREFIX, _LABEL_DEFAULT_CHARSET, _LABEL_COLUMN_CHARSET = 7, 8, 9, 10, 11
_SIGNED_TYPES: Final = frozenset((*_INTEGERS, ColumnCode.FLOAT, ColumnCode.DOUBLE, ColumnCode.DECIMAL, ColumnCode.YEAR))
_TEXT_TYPES: Final = frozenset(
    (
        ColumnCode.VARCHAR,
        ColumnCode.VAR_STRING,
        ColumnCode.STRING,
        ColumnCode.BLOB,
        ColumnCode.BLOB_COMPRESSED,
        ColumnCode.VARCHAR_COMPRESSED,
    )
)
_POINT: Final = 1


@dataclass(frozen=True)
class _Physical:
    """A column as the first part of a table map has it."""

    type: int
    metadata: bytes
    is_nullable: bool


@dataclass
class _Described:
    """A column's optional metadata."""

    name: str
    is_unsigned: bool = False
    charset: str = BINARY
    labels: tuple[str, ...] = ()
    is_point: bool = False


def packed_int(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer. Return it and where the next field begins."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def table_names(body: bytes) -> tuple[str, str]:
    """Return the database and the table of a table map, whose id and flags were cut off."""
    end = 1 + body[0]
    start = end + 2
    return body[1:end].decode(), body[start : start + body[end + 1]].decode()


def table_shape(body: bytes, charsets: Mapping[int, str]) -> MariadbTableShape:
    """Return the table of a table map, whose id and flags were cut off.

    `charsets` has the character set of each collation. Raise ConnectFailed if it lacks the metadata, or has a type
    that is not known.
    """
    database, name = table_names(body)
    full_name = f"{database}.{name}"
    at = 1 + body[0] + 1
    at += 1 + body[at] + 1
    count, at = packed_int(body, at)
    types, at = body[at : at + count], at + count
    size, at = packed_int(body, at)
    metadata, at = body[at : at + size], at + size
    nullable, at = body[at : at + (count + 7) // 8], at + (count + 7) // 8
    columns = list(_physical(full_name, types, metadata, nullable))
    fields = dict(_fields(body, at))
    if count and _NAMES not in fields:
        raise ConnectFailed(
            f"the binlog has changes of {full_name} without the names of its columns: SET GLOBAL "
            "binlog_row_metadata=FULL, keep it in the server's configuration, and take a new snapshot"
        )
    described = _described(fields, columns, charsets)
    shapes, readers = [], []
    for column, its in zip(columns, described, strict=True):
        shape, read = _column(full_name, column, its)
        shapes.append(shape)
        readers.append(read)
    key = tuple(shapes[each].name for each in _key(fields))
    return MariadbTableShape(database, name, tuple(shapes), key, tuple(readers))


def _physical(full_name: str, types: bytes, metadata: bytes, nullable: bytes) -> Iterator[_Physical]:
    at = 0
    for index, kind in enumerate(types):
        size = _METADATA_SIZE.get(kind, 0)
        is_nullable = bool(nullable[index // 8] >> index % 8 & 1)
        its = metadata[at : at + size]
        at += size
        if kind == ColumnCode.STRING and its[0] in (ColumnCode.ENUM, ColumnCode.SET):
            kind = its[0]
        if kind in _OLD_TEMPORAL:
            raise ConnectFailed(
                f"column {index + 1} of {full_name} is a {_OLD_TEMPORAL[kind]} in the format before MariaDB 10.1: "
                "ALTER TABLE … FORCE with mysql56_temporal_format=ON, and take a new snapshot"
            )
        yield _Physical(kind, its, is_nullable)


def _fields(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        kind = body[at]
        size, at = packed_int(body, at + 1)
        yield kind, body[at : at + size]
        at += size


def _described(
    fields: Mapping[int, bytes], columns: Sequence[_Physical], charsets: Mapping[int, str]
) -> list[_Described]:
    found = [_Described(each.decode()) for each in _texts(fields.get(_NAMES, b""))]
    signs = fields.get(_SIGNEDNESS, b"")
    signed = [at for at, each in enumerate(columns) if each.type in _SIGNED_TYPES]
    for place, at in enumerate(signed):
        if place // 8 < len(signs):
            found[at].is_unsigned = bool(signs[place // 8] >> 7 - place % 8 & 1)
    for types, default, each_own in (
        (_TEXT_TYPES, _DEFAULT_CHARSET, _COLUMN_CHARSET),
        (frozenset((ColumnCode.ENUM, ColumnCode.SET)), _LABEL_DEFAULT_CHARSET, _LABEL_COLUMN_CHARSET),
    ):
        chosen = [at for at, each in enumerate(columns) if each.type in types]
        for at, collation in zip(chosen, _collations(fields, default, each_own, len(chosen)), strict=False):
            found[at].charset = charsets.get(collation, f"of collation {collation}")
    for kind, field in ((ColumnCode.SET, _SET_LABELS), (ColumnCode.ENUM, _ENUM_LABELS)):
        chosen = [at for at, each in enumerate(columns) if each.type == kind]
        for at, labels in zip(chosen, _label_lists(fields.get(field, b"")), strict=False):
            decode = decoder(found[at].charset) or bytes.decode
            found[at].labels = tuple(decode(each) for each in labels)
    geometries = [at for at, each in enumerate(columns) if each.type == ColumnCode.GEOMETRY]
    for at, geometry in zip(geometries, _ints(fields.get(_GEOMETRY_TYPE, b"")), strict=False):
        found[at].is_point = geometry == _POINT
    return found


def _collations(fields: Mapping[int, bytes], default: int, each_own: int, count: int) -> list[int]:
    """Return the collation of each column that has one."""
    if default in fields:
        numbers = list(_ints(fields[default]))
        found = [numbers[0]] * count
        for at, collation in zip(numbers[1::2], numbers[2::2], strict=True):
            found[at] = collation
        return found
    return list(_ints(fields.get(each_own, b"")))


def _key(fields: Mapping[int, bytes]) -> list[int]:
    if _KEY in fields:
        return list(_ints(fields[_KEY]))
    return list(_ints(fields.get(_KEY_WITH_PREFIX, b"")))[::2]


def _ints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = packed_int(data, at)
        yield value


def _texts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = packed_int(data, at)
        yield data[at : at + size]
        at += size


def _label_lists(data: bytes) -> Iterator[list[bytes]]:
    at = 0
    while at < len(data):
        count, at = packed_int(data, at)
        labels = []
        for _ in range(count):
            size, at = packed_int(data, at)
            labels.append(data[at : at + size])
            at += size
        yield labels


def _column(full_name: str, column: _Physical, its: _Described) -> tuple[ColumnShape, ReadValue]:
    """Return a column's shape, and how its values are read."""
    empty = None if column.is_nullable else 0
    first = column.metadata[0] if column.metadata else 0
    second = column.metadata[1] if len(column.metadata) > 1 else 0

    def shape(kind: ColumnKind, length: int = 0, scale: int = 0) -> ColumnShape:
        labels, is_point = its.labels, its.is_point
        return ColumnShape(
            its.name, kind, column.is_nullable, its.is_unsigned, length, scale, labels=labels, is_point=is_point
        )

    match column.type:
        case kind if kind in _INTEGERS:
            name, code = _INTEGERS[kind]
            if not code:
                return shape(name), row_values.mediumint(its.is_unsigned)
            return shape(name), row_values.number(code.upper() if its.is_unsigned else code)
        case ColumnCode.FLOAT:
            return shape("float"), row_values.number("f")
        case ColumnCode.DOUBLE:
            return shape("double"), row_values.number("d")
        case ColumnCode.DECIMAL:
            return shape("decimal", first, second), row_values.decimal(first, second)
        case ColumnCode.DATE:
            return shape("date"), row_values.day(empty)
        case ColumnCode.TIMESTAMP:
            return shape("timestamp", first), row_values.timestamp(first, empty)
        case ColumnCode.DATETIME:
            return shape("datetime", first), row_values.datetime(first, empty)
        case ColumnCode.TIME:
            return shape("time", first), row_values.time(first)
        case ColumnCode.YEAR:
            return shape("year"), row_values.year
        case ColumnCode.BIT:
            bits = second * 8 + first
            return shape("bit", bits), row_values.fixed((bits + 7) // 8)
        case ColumnCode.ENUM:
            return shape("enum"), row_values.label(second, its.labels)
        case ColumnCode.SET:
            return shape("set"), row_values.label_set(second, its.labels)
        case ColumnCode.GEOMETRY:
            return shape("geometry"), row_values.sized(first)
        case kind if kind in _TEXT_TYPES:
            return _text_column(full_name, column, its, shape)
    raise ConnectFailed(
        f"the column {its.name} of {full_name} has the type {column.type} of the binlog, which is not known: leave the "
        "table out with table.exclude.list"
    )


def _text_column(
    full_name: str, column: _Physical, its: _Described, shape: Callable[[ColumnKind, int], ColumnShape]
) -> tuple[ColumnShape, ReadValue]:
    decode: Decode | None = None
    if its.charset != BINARY:
        decode = decoder(its.charset)
        if decode is None:
            raise ConnectFailed(
                f"the column {its.name} of {full_name} has the character set {its.charset}, which is not known: "
                "convert it to utf8mb4, or leave the table out with table.exclude.list"
            )
    kind: ColumnKind = "bytes" if decode is None else "text"
    match column.type:
        case ColumnCode.BLOB:
            return shape(kind, 0), row_values.sized(column.metadata[0], decode)
        case ColumnCode.BLOB_COMPRESSED:
            return shape(kind, 0), row_values.sized(column.metadata[0], row_values.uncompressed(decode))
        case ColumnCode.STRING:
            # Two bits of a length above 255 are in the type's byte, inverted.
            length = column.metadata[1] | ((column.metadata[0] & 0x30) ^ 0x30) << 4
            prefix = 1 if length < 256 else 2
            read = row_values.padded(prefix, length) if decode is None else row_values.sized(prefix, decode)
            return shape(kind, length), read
    length = int.from_bytes(column.metadata, "little")
    made = row_values.uncompressed(decode) if column.type == ColumnCode.VARCHAR_COMPRESSED else decode
    return shape(kind, length), row_values.sized(1 if length < 256 else 2, made)
