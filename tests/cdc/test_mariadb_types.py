"""Every column type of MariaDB: the snapshot and the stream give the same fields, and the right ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest
from tests.cdc.mariadb_reading import MariadbReader, has
from tests.cdc.mariadb_server import MariadbDatabase, mariadb

from strandline.connect.schema import Schema

__all__ = ["mariadb"]
pytestmark = pytest.mark.slow

_POINT_WKB: Final = bytes.fromhex("0101000000000000000000f83f0000000000000240")
COLUMNS: Final[dict[str, tuple[str, str, Any, Any]]] = {
    # name: type, value, field's value, type or name of the field's schema
    "ti": ("tinyint", "-128", -128, "int16"),
    "tu": ("tinyint unsigned", "255", 255, "int16"),
    "bo": ("bool", "true", 1, "int16"),
    "si": ("smallint", "-32768", -32768, "int16"),
    "su": ("smallint unsigned", "65535", 65535, "int32"),
    "mi": ("mediumint", "-8388608", -8388608, "int32"),
    "mu": ("mediumint unsigned", "16777215", 16777215, "int32"),
    "i": ("int", "-2147483648", -2147483648, "int32"),
    "iu": ("int unsigned", "4294967295", 4294967295, "int64"),
    "zf": ("int(8) zerofill", "42", 42, "int64"),
    "bi": ("bigint", "-9223372036854775808", -9223372036854775808, "int64"),
    "bu": ("bigint unsigned", "18446744073709551615", -1, "int64"),
    "y": ("year", "2155", 2155, "io.debezium.time.Year"),
    "f": ("float", "1.23456789", 1.2345678806304932, "float"),
    "db": ("double", "-1.7976931348623157e308", -1.7976931348623157e308, "double"),
    "d1": ("decimal(10,2)", "-99999999.99", Decimal("-99999999.99"), "org.apache.kafka.connect.data.Decimal"),
    "d2": ("decimal(65,30)", f"{'9' * 35}.{'8' * 30}", Decimal(f"{'9' * 35}.{'8' * 30}"), "bytes"),
    "d3": ("decimal(9,9)", "-0.000000001", Decimal("-0.000000001"), "bytes"),
    "d4": ("decimal(8,3) unsigned", "0", Decimal("0.000"), "bytes"),
    "b1": ("bit(1)", "b'1'", True, "boolean"),
    "b10": ("bit(10)", "b'1100000001'", b"\x01\x03", "io.debezium.data.Bits"),
    "c": ("char(5)", "'äö '", "äö", "string"),
    "cl": ("char(255)", "'ß'", "ß", "string"),
    "vc": ("varchar(1000)", "'😀 日本'", "😀 日本", "string"),
    "l1": ("varchar(20) character set latin1", "'Ä€'", "Ä€", "string"),
    "u16": ("varchar(9) character set utf16", "'日😀'", "日😀", "string"),
    "lt": ("longtext", "'long'", "long", "string"),
    "js": ("json", "'{\"a\": [1, 2]}'", '{"a": [1, 2]}', "string"),
    "vcc": ("varchar(100) compressed", "repeat('abc',30)", "abc" * 30, "string"),
    "txc": ("text compressed", "repeat('hällo ',999)", "hällo " * 999, "string"),
    "bn": ("binary(16)", "'abc'", b"abc" + b"\0" * 13, "bytes"),
    "vb": ("varbinary(300)", "x'00ff00'", b"\0\xff\0", "bytes"),
    "bl": ("blob", "x'deadbeef00'", b"\xde\xad\xbe\xef\0", "bytes"),
    "e": ("enum('a','it''s, ok')", "'it''s, ok'", "it's, ok", "io.debezium.data.Enum"),
    "el": ("enum('x','é') character set latin1", "'é'", "é", "io.debezium.data.Enum"),
    "st": ("set('x','y','z')", "'z,x'", "x,z", "io.debezium.data.EnumSet"),
    "uu": (
        "uuid",
        "'123e4567-e89b-12d3-a456-426655440000'",
        "123e4567-e89b-12d3-a456-426655440000",
        "io.debezium.data.Uuid",
    ),
    "ip": ("inet6", "'2001:db8::ff00:0'", "2001:db8::ff00:0", "string"),
    "ip2": ("inet6", "'::1.2.3.0'", "::1.2.3.0", "string"),
    "i4": ("inet4", "'192.168.1.0'", "192.168.1.0", "string"),
    "da": ("date", "'0001-01-01'", -719162, "io.debezium.time.Date"),
    "t0": ("time", "'-838:59:59'", -3020399000000, "io.debezium.time.MicroTime"),
    "t6": ("time(6)", "'-00:00:00.000001'", -1, "io.debezium.time.MicroTime"),
    "dt": ("datetime", "'9999-12-31 23:59:59'", 253402300799000, "io.debezium.time.Timestamp"),
    "dt3": ("datetime(3)", "'1969-12-31 23:59:59.999'", -1, "io.debezium.time.Timestamp"),
    "dt6": ("datetime(6)", "'2024-02-29 12:34:56.789012'", 1709210096789012, "io.debezium.time.MicroTimestamp"),
    "ts": ("timestamp null", "'2024-02-29 12:34:56'", "2024-02-29T12:34:56Z", "io.debezium.time.ZonedTimestamp"),
    "ts6": ("timestamp(6) null", "'2024-02-29 12:34:56.78'", "2024-02-29T12:34:56.780000Z", "string"),
    "zd": ("date", "'0000-00-00'", None, "io.debezium.time.Date"),
    "zt": ("datetime not null", "'2024-00-10 01:02:03'", 0, "io.debezium.time.Timestamp"),
    "g": ("geometry", "st_geomfromtext('point(1.5 2.25)', 4326)", {"wkb": _POINT_WKB, "srid": 4326}, "struct"),
    "p": ("point", "point(1.5, 2.25)", {"x": 1.5, "y": 2.25, "wkb": _POINT_WKB, "srid": None}, "struct"),
    "vi": ("int as (id * 0 + 7) virtual", "", 7, "int32"),
    "inv": ("int invisible default 3", "4", 4, "int32"),
}
MODES: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "decimal": {
        "double": {"d1": -99999999.99},
        "string": {"d1": "-99999999.99", "d2": f"{'9' * 35}.{'8' * 30}", "d3": "-0.000000001", "d4": "0.000"},
    },
    "binary": {
        "base64": {"vb": "AP8A", "bn": "YWJjAAAAAAAAAAAAAAAAAA=="},
        "base64-url-safe": {"vb": "AP8A"},
        "hex": {"vb": "00ff00", "bl": "deadbeef00"},
    },
    "bigint.unsigned": {"precise": {"bu": Decimal(18446744073709551615)}},
    "time.precision": {
        "microseconds": {"dt": 253402300799000000, "t6": -1},
        "nanoseconds": {"dt3": -1000000, "t6": -1000},
        "isostring": {"da": "0001-01-01Z", "dt3": "1969-12-31T23:59:59.999Z"},
    },
}


def _create(database: MariadbDatabase) -> None:
    columns = ", ".join(f"`{name}` {its[0]}" for name, its in COLUMNS.items())
    database.run(f"create table t (id int primary key, {columns})")


def _insert(database: MariadbDatabase, number: int) -> None:
    given = {name: its[1] for name, its in COLUMNS.items() if its[1]}
    connection = database.connect()
    with connection.cursor() as cursor:
        cursor.execute("set time_zone='+00:00', sql_mode=''")
        names = ", ".join(f"`{each}`" for each in given)
        cursor.execute(f"insert into t (id, {names}) values ({number}, {', '.join(given.values())})")
        cursor.execute(f"insert into t (id, zt) values ({number + 1}, '2024-01-01')")
    connection.close()


def _type(schema: Schema) -> set[str]:
    return {str(schema.kind), schema.name or ""}


def test_every_type_has_the_same_field_from_a_snapshot_and_from_the_stream(mariadb: MariadbDatabase) -> None:
    _create(mariadb)
    _insert(mariadb, 1)
    reader = MariadbReader(mariadb)
    reader.read(has("t", 2))
    _insert(mariadb, 11)
    reader.read(has("t", 4))
    snapshot, nulls, streamed, streamed_nulls = (each["after"] for each in reader.values("t"))
    for name, (kind, _, value, type_name) in COLUMNS.items():
        assert snapshot[name] == value, f"{name} {kind} in the snapshot"
        assert streamed[name] == value, f"{name} {kind} in the stream"
        assert nulls[name] == streamed_nulls[name], f"{name} {kind} as NULL"
        schema = _field(reader, 2, name)
        assert type_name in _type(schema), f"{name} {kind}"
    first, second = (reader.of("t")[at].value_schema for at in (0, 2))
    assert first == second
    assert [each["op"] for each in reader.values("t")] == ["r", "r", "c", "c"]


def _field(reader: MariadbReader, at: int, name: str) -> Schema:
    schema = reader.of("t")[at].value_schema
    assert schema is not None
    row = schema.field("after")
    assert row is not None
    found = row.schema.field(name)
    assert found is not None
    return found.schema


def test_handling_modes_change_the_fields(mariadb: MariadbDatabase) -> None:
    _create(mariadb)
    reader = MariadbReader(mariadb)
    reader.read(lambda reader: bool(reader.schema_changes))
    _insert(mariadb, 1)
    for setting, modes in MODES.items():
        name = setting if setting.startswith("time") else f"{setting}.handling"
        for mode, expected in modes.items():
            # A time of more than a day has no ISO form.
            left_out = f"{mariadb.name}.t.(t0|t6)" if mode == "isostring" else "none"
            other = MariadbReader(mariadb)
            other.settings = {f"{name}.mode": mode, "column.exclude.list": left_out}
            other.read(has("t", 1))
            row = other.values("t")[0]["after"]
            assert {each: row[each] for each in expected} == expected, f"{setting} {mode}"


def test_labels_and_precision_are_parameters(mariadb: MariadbDatabase) -> None:
    _create(mariadb)
    _insert(mariadb, 1)
    reader = MariadbReader(mariadb)
    reader.read(has("t", 2))
    assert _field(reader, 0, "st").parameters == {"allowed": "x,y,z"}
    assert _field(reader, 0, "d1").parameters == {"scale": "2", "connect.decimal.precision": "10"}
    assert _field(reader, 0, "b10").parameters == {"length": "10"}
    assert _field(reader, 0, "zt").optional is False
