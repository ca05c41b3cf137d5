"""Columns of every type in every mode, from a real PostgreSQL: schemas, values, defaults and placeholders."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any, Final

import psycopg
import pytest
from tests.cdc.postgres_types_support import (
    DEFAULTS,
    columns_of,
    connected,
    converted,
    run,
    schema_json,
    value_json,
    values_of,
)

from strandline.cdc.model import CapturedColumn
from strandline.cdc.postgres.types import PgType, TypeCatalog, TypeSettings, captured_column
from strandline.cdc.postgres.types.defaults import constant_of
from strandline.cdc.postgres.types.numbers import money_text
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.schema import ConnectType

_ODD_TEXTS: Final = r"""array['', 'NULL', null, 'a,b', '{x}', E'\\"\n', 'ü']"""
_PLACEHOLDER: Final = "__debezium_unavailable_value"


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection[Any]]:
    """Give a connection to a database that the tests of this module share; each has tables of its own."""
    with connected() as connection:
        yield connection


def _asked(
    database: psycopg.Connection[Any], kind: str, value: str, settings: TypeSettings, *, is_optional: bool = True
) -> tuple[CapturedColumn | None, bytes | None]:
    """Return the column that has this type, and PostgreSQL's text of the value."""
    answer = database.execute(f"select ({value})::{kind}").pgresult
    assert answer is not None
    column = captured_column(
        "v",
        answer.ftype(0),
        answer.fmod(0),
        is_optional=is_optional,
        default=None,
        catalog=_builtin_types(database),
        settings=settings,
    )
    return column, answer.get_value(0, 0)


@cache
def _builtin_types(database: psycopg.Connection[Any]) -> TypeCatalog:
    return TypeCatalog.load(database)


def _one(
    database: psycopg.Connection[Any],
    kind: str,
    value: str,
    settings: TypeSettings = DEFAULTS,
    *,
    is_optional: bool = True,
) -> Any:
    """Return what one value of one type becomes, after it went through the schema's writer, too."""
    column, text = _asked(database, kind, value, settings, is_optional=is_optional)
    assert column is not None
    found = converted(column, text)
    value_json(column.schema, found)
    return found


def _table(database: psycopg.Connection[Any], columns: str) -> str:
    run(database, ["drop table if exists tried", f"create table tried ({columns})"])
    return "tried"


def _column(
    database: psycopg.Connection[Any], table: str, name: str, settings: TypeSettings = DEFAULTS
) -> CapturedColumn:
    column = columns_of(database, table, settings)[name]
    assert column is not None
    return column


def _typed(database: psycopg.Connection[Any], kind: str, settings: TypeSettings = DEFAULTS) -> CapturedColumn:
    column, _ = _asked(database, kind, "null", settings)
    assert column is not None
    return column


def _schema_of(database: psycopg.Connection[Any], kind: str, settings: TypeSettings = DEFAULTS) -> Any:
    return schema_json(_typed(database, kind, settings).schema)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bool", "true", True),
        ("int2", "-32768", -32768),
        ("oid", "4294967295", 4294967295),
        ("float4", "1.1", 1.1),
        ("numeric(10,2)", "'-1.5'", Decimal("-1.50")),
        ("numeric", "'1.2300'", {"scale": 2, "value": b"\x7b"}),
        ("numeric", "'-12300'", {"scale": 0, "value": b"\xcf\xf4"}),
        ("numeric", "'NaN'", None),
        ("numeric(4,1)", "'NaN'", None),
        ("numeric", "'-Infinity'", None),
        ("money", "'-1234567.89'", Decimal("-1234567.89")),
        ("varbit(1)", "''", False),
        ("varbit", "'1'", b"\x01"),
        ("bit(12)", "'000000000000'", b""),
        ("bit(12)", "'000100000011'", b"\x03\x01"),
        ('"char"', "''", ""),
        ("char(4)", "'ä'", "ä   "),
        ("bytea", r"'\x00ff'", b"\x00\xff"),
        ("time(3)", "'24:00'", 86_400_000),
        ("timetz", "'00:30:00.5+01'", "23:30:00.5Z"),
        ("timetz", "'12:00-15:59:30'", "03:59:30Z"),
        ("timestamptz(0)", "'2026-01-01 00:00:00.6+00'", "2026-01-01T00:00:01Z"),
        ("timestamptz(2)", "'0044-03-15 12:00:00.129+00 BC'", "-0043-03-15T12:00:00.13Z"),
        ("timestamptz", "'10000-01-01 00:00+00'", "+10000-01-01T00:00:00.000000Z"),
        ("timestamp", "'10000-01-01'", 253_402_300_800_000_000),
        ("timestamp", "'0001-01-01 BC'", -62_167_219_200_000_000),
        ("interval", "'-1 year +3 days -00:00:01.5'", -31_298_401_500_000),
        ("interval", "'infinity'", 2**63 - 1),
        ("int[]", "'{{1,2},{NULL,4}}'", [1, 2, None, 4]),
        ("int[]", "'[-1:1]={7,8,9}'", [7, 8, 9]),
        ("text[]", _ODD_TEXTS, ["", "NULL", None, "a,b", "{x}", '\\"\n', "ü"]),
        ("bit(3)[]", "'{101}'", [b"\x05"]),
        ("numeric(4,1)[]", "'{1.5,NaN}'", [Decimal("1.5"), None]),
        ("timestamptz(3)[]", "'{2026-01-01 00:00+00,infinity}'", ["2026-01-01T00:00:00.000Z", "infinity"]),
    ],
)
def test_a_value_becomes_what_debezium_makes_of_it(
    database: psycopg.Connection[Any], kind: str, value: str, expected: Any
) -> None:
    found = _one(database, kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "settings", "expected"),
    [
        ("numeric(10,2)", "1.5", TypeSettings(decimal="string"), "1.50"),
        ("numeric", "'NaN'", TypeSettings(decimal="string"), "NAN"),
        ("numeric", "'-Infinity'", TypeSettings(decimal="string"), "NEGATIVE_INFINITY"),
        ("numeric", "1.25", TypeSettings(decimal="double"), 1.25),
        ("numeric", "'Infinity'", TypeSettings(decimal="double"), math.inf),
        ("money", "'1234.5'", TypeSettings(decimal="string"), "1234.50"),
        ("money", "'1234.5'", TypeSettings(decimal="double"), 1234.5),
        ("money", "'1234.55'", TypeSettings(money_digits=1), Decimal("1234.6")),
        ("bytea", r"'\xfbff'", TypeSettings(binary="base64"), "+/8="),
        ("bytea", r"'\xfbff'", TypeSettings(binary="base64-url-safe"), "-_8="),
        ("bytea", r"'\xfbff'", TypeSettings(binary="hex"), "fbff"),
        ("bytea[]", r"array['\xfbff'::bytea, null]", TypeSettings(binary="hex"), ["fbff", None]),
        ("date", "'2026-02-28'", TypeSettings(time="connect"), datetime.date(2026, 2, 28)),
        ("date", "'infinity'", TypeSettings(time="connect"), -2_147_472_692),
        ("date", "'0044-03-15 BC'", TypeSettings(time="isostring"), "-0043-03-15Z"),
        ("time", "'01:02:03.5678'", TypeSettings(time="connect"), datetime.time(1, 2, 3, 567_000)),
        ("time", "'24:00'", TypeSettings(time="connect"), 86_400_000),
        ("time", "'24:00'", TypeSettings(time="isostring"), "00:00:00Z"),
        ("time(0)", "'01:02:03'", TypeSettings(time="adaptive_time_microseconds"), 3_723_000_000),
        ("time(0)", "'01:02:03'", TypeSettings(time="microseconds"), 3_723_000_000),
        ("time(0)", "'01:02:03'", TypeSettings(time="nanoseconds"), 3_723_000_000_000),
        ("timestamp(3)", "'1970-01-01 00:00:01'", TypeSettings(time="adaptive_time_microseconds"), 1000),
        ("timestamp(3)", "'1970-01-01 00:00:01'", TypeSettings(time="microseconds"), 1_000_000),
        ("timestamp", "'1970-01-01 00:00:01'", TypeSettings(time="nanoseconds"), 1_000_000_000),
        ("timestamp", "'-infinity'", TypeSettings(time="nanoseconds"), -(2**63)),
        ("timestamp", "'2300-01-01'", TypeSettings(time="nanoseconds"), None),
        ("timestamp", "'1969-12-31 23:59:59.9999'", TypeSettings(time="isostring"), "1969-12-31T23:59:59.9999Z"),
        ("timestamp", "'0044-03-15 BC'", TypeSettings(time="isostring"), "-0043-03-15T00:00:00Z"),
        ("timestamp", "'10000-01-01'", TypeSettings(time="connect"), 253_402_300_800_000),
        ("interval", "'1 year -00:00:00.001'", TypeSettings(interval="string"), "P1Y0M0DT0H0M-0.001S"),
        ("interval", "'-infinity'", TypeSettings(interval="string"), "-infinity"),
        ("tsquery", "'a & b'", TypeSettings(include_unknown=True), b"'a' & 'b'"),
        ("tsquery", "'a'", TypeSettings(include_unknown=True, binary="hex"), "276127"),
        (
            "box[]",
            "'{(1,1),(0,0);(2,2),(1,1)}'",
            TypeSettings(include_unknown=True),
            [b"(1.0,1.0),(0.0,0.0)", b"(2.0,2.0),(1.0,1.0)"],
        ),
        ("money[]", "'{1.5,NULL}'", TypeSettings(include_unknown=True), [Decimal("1.50"), None]),
    ],
)
def test_modes_give_other_forms(
    database: psycopg.Connection[Any], kind: str, value: str, settings: TypeSettings, expected: Any
) -> None:
    found = _one(database, kind, value, settings)
    assert found == expected
    assert type(found) is type(expected)


def test_a_timestamp_of_connect_is_an_aware_datetime_cut_to_milliseconds(database: psycopg.Connection[Any]) -> None:
    found = _one(database, "timestamp", "'1969-12-31 23:59:59.9999'", TypeSettings(time="connect"))
    assert found == datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "settings"),
    [
        ("numeric", "'NaN'", DEFAULTS),
        ("numeric(3,1)", "'NaN'", DEFAULTS),
        ("timestamp", "'2300-01-01'", TypeSettings(time="nanoseconds")),
    ],
)
def test_a_required_value_without_a_form_fails_with_the_column_and_the_setting(
    database: psycopg.Connection[Any], kind: str, value: str, settings: TypeSettings
) -> None:
    with pytest.raises(ConnectFailed, match=r"Column v holds .* set (decimal\.handling|time\.precision)\.mode to"):
        _one(database, kind, value, settings, is_optional=False)


def test_a_point_has_its_coordinates_as_wkb_too(database: psycopg.Connection[Any]) -> None:
    found = _one(database, "point", "'(1.5,-Infinity)'")
    wkb = struct.pack("<BIdd", 1, 1, 1.5, -math.inf)
    assert found == {"x": 1.5, "y": -math.inf, "wkb": wkb, "srid": None}


@pytest.mark.parametrize(
    "kind", ["xid8", "box", "pg_lsn", "int4multirange", "money[]", "name[]", "xml[]", "int2vector"]
)
def test_types_that_debezium_leaves_out_are_left_out(database: psycopg.Connection[Any], kind: str) -> None:
    assert _asked(database, kind, "null", DEFAULTS)[0] is None
    assert _asked(database, kind, "null", TypeSettings(include_unknown=True))[0] is not None


def test_a_huge_element_of_an_array_is_read_whole(database: psycopg.Connection[Any]) -> None:
    column = _typed(database, "text[]")
    element = rb"a\"b\\" * 200_000
    assert column.convert(b'{"' + element + b'",c}') == ['a"b\\' * 200_000, "c"]
    pairs = _extension_column("hstore", TypeSettings(hstore="map")).convert(b'"k"=>"' + element + b'"')
    assert pairs == {"k": 'a"b\\' * 200_000}


@pytest.mark.parametrize("digits", [4_000, 4_301, 130_000])
def test_a_numeric_of_many_digits_is_exact(database: psycopg.Connection[Any], digits: int) -> None:
    found = _one(database, "numeric", f"'-{'7' * digits}.{'3' * 10}'")
    number = int.from_bytes(found["value"], "big", signed=True)
    assert found["scale"] == 10
    # By arithmetic, because a text of so many digits is not an int for Python.
    assert number == -((10**digits - 1) // 9 * 7 * 10**10 + 3_333_333_333)


def test_domains_are_their_base_with_the_modifier_of_the_innermost(database: psycopg.Connection[Any]) -> None:
    run(
        database,
        [
            "create type color as enum ('red', 'light blue', 'a,b')",
            "create domain price as numeric(6,2)",
            "create domain low_price as price",
            "create domain colors as color[]",
            "create domain shade as color",
            "create domain short_times as timestamp(3)[]",
        ],
    )
    table = _table(database, "p low_price, c shade, cs colors, ts short_times, ap price[]")
    run(database, [f"insert into {table} values (1.5, 'a,b', '{{\"light blue\",NULL}}', '{{1970-01-01}}', '{{1}}')"])
    assert values_of(database, table) == [
        {"p": Decimal("1.50"), "c": "a,b", "cs": ["light blue", None], "ts": [0]},
    ]
    columns = columns_of(database, table, DEFAULTS)
    assert columns["ap"] is None
    price = _column(database, table, "p").schema
    assert dict(price.parameters) == {"scale": "2", "connect.decimal.precision": "6"}
    assert _column(database, table, "c").schema.parameters == {"allowed": "red,light blue,a,b"}
    assert values_of(database, table, TypeSettings(include_unknown=True))[0]["ap"] == [b"1.00"]


def test_a_type_created_after_the_load_is_unknown_until_the_catalogue_is_loaded_again(
    database: psycopg.Connection[Any],
) -> None:
    before = TypeCatalog.load(database)
    run(database, ["create type late as enum ('x')"])
    table = _table(database, "v late, w late[]")
    row = database.execute("select 'late'::regtype::oid::int8").fetchone()
    assert row is not None
    assert before.get(row[0]) is None
    assert columns_of(database, table, DEFAULTS, before) == {"v": None, "w": None}
    found = TypeCatalog.load(database).get(row[0])
    assert found is not None
    assert (found.name, found.labels) == ("late", ("x",))
    assert _column(database, table, "w").schema.value_schema is not None


def test_an_own_type_with_a_builtin_name_is_not_taken_for_it(database: psycopg.Connection[Any]) -> None:
    run(database, ["create type public.money as (a int)", "create domain public.point as text"])
    try:
        table = _table(database, "m public.money, p public.point")
        run(database, [f"insert into {table} values ('(1)', 'here')"])
        assert values_of(database, table) == [{"p": "here"}]
    finally:
        run(database, ["drop table tried", "drop type public.money", "drop domain public.point"])


def test_extensions_in_a_schema_of_their_own_are_known() -> None:
    with connected() as connection:
        run(
            connection,
            ["create schema ext", *(f"create extension {e} schema ext" for e in ("hstore", "citext", "ltree"))],
        )
        run(connection, ["create table t (h ext.hstore, ha ext.hstore[], c ext.citext, ca ext.citext[], l ext.ltree)"])
        pairs = '"a=>""b"=>"1", "ü"=>NULL'.replace('""', '\\"')
        arrays = "array['x=>1'::ext.hstore, null], 'C', '{a,NULL}'"
        run(connection, [f"insert into t values ('{pairs}', {arrays}, 'a.b')"])
        (found,) = values_of(connection, "t")
        assert found == {
            "h": '{"ü":null,"a=>\\"b":"1"}',
            "ha": ['{"x":"1"}', None],
            "c": "C",
            "ca": ["a", None],
            "l": "a.b",
        }
        (found,) = values_of(connection, "t", TypeSettings(hstore="map"))
        assert found["h"] == {"ü": None, 'a=>"b': "1"}
        assert found["ha"] == [{"x": "1"}, None]


def _extension_column(name: str, settings: TypeSettings = DEFAULTS) -> CapturedColumn:
    """Return a column of an extension that the server of the tests does not have."""
    catalog = TypeCatalog([PgType(99_999, name, "public", "b")])
    column = captured_column("v", 99_999, -1, is_optional=False, default=None, catalog=catalog, settings=settings)
    assert column is not None
    return column


def test_geometries_are_wkb_with_their_srid() -> None:
    column = _extension_column("geometry")
    with_srid = b"0101000020E6100000000000000000F03F0000000000000040"
    assert column.convert(with_srid) == {"wkb": bytes.fromhex(with_srid.decode()), "srid": 4326}
    without = b"0101000000000000000000F03F0000000000000040"
    assert column.convert(without) == {"wkb": bytes.fromhex(without.decode()), "srid": None}
    big_endian = b"0020000001000010E63FF00000000000004000000000000000"
    assert column.convert(big_endian)["srid"] == 4326
    assert column.schema.optional
    assert _extension_column("geography").schema.name == "io.debezium.data.geometry.Geography"


def test_vectors_are_arrays_and_sparse_ones_maps() -> None:
    assert _extension_column("vector").convert(b"[1,-2.5]") == [1.0, -2.5]
    assert _extension_column("halfvec").schema.value_schema is not None
    column = _extension_column("sparsevec")
    assert column.convert(b"{1:0.5,3:2}/5") == {"dimensions": 5, "vector": {1: 0.5, 3: 2.0}}
    assert column.convert(b"{}/5") == {"dimensions": 5, "vector": {}}


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("text", DEFAULTS, _PLACEHOLDER),
        ("jsonb", DEFAULTS, _PLACEHOLDER),
        ("bytea", DEFAULTS, _PLACEHOLDER.encode()),
        ("bytea", TypeSettings(binary="hex"), _PLACEHOLDER),
        ("bytea", TypeSettings(binary="base64"), "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ("bytea[]", TypeSettings(binary="base64"), ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]),
        ("bytea", TypeSettings(placeholder="hex:00ff"), b"\x00\xff"),
        ("text[]", DEFAULTS, [_PLACEHOLDER]),
        ("int[]", TypeSettings(placeholder="hex:01ff"), [1, -1]),
        ("float8[]", TypeSettings(placeholder="hex:01ff"), [1.0, -1.0]),
        ("timestamp[]", TypeSettings(placeholder="hex:01"), [1]),
        ("uuid[]", TypeSettings(placeholder="hello"), ["5d41402a-bc4b-3a76-b971-9d911017c592"]),
        ("numeric", TypeSettings(placeholder="A"), {"scale": 0, "value": b"A"}),
        ("numeric(5,2)", TypeSettings(placeholder="A"), Decimal("0.65")),
        ("numeric", TypeSettings(decimal="string"), _PLACEHOLDER),
        ("varbit", TypeSettings(placeholder="A"), b"A"),
        ("bool[]", DEFAULTS, []),
    ],
)
def test_a_value_that_was_not_sent_has_a_placeholder_of_its_type(
    database: psycopg.Connection[Any], kind: str, settings: TypeSettings, expected: Any
) -> None:
    column = _typed(database, kind, settings)
    assert column.placeholder == expected
    value_json(column.schema, column.placeholder)


def test_an_hstore_that_was_not_sent_has_a_pair_of_placeholders() -> None:
    assert _extension_column("hstore").placeholder == f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}'
    as_map = _extension_column("hstore", TypeSettings(hstore="map"))
    assert as_map.placeholder == {_PLACEHOLDER: _PLACEHOLDER}


@pytest.mark.parametrize(
    ("expression", "constant"),
    [
        ("5", b"5"),
        ("'-5'::integer", b"-5"),
        ("(5)::numeric", b"5"),
        ("true", b"t"),
        ("'it''s'::text", b"it's"),
        ("'a::b'::character varying(10)", b"a::b"),
        ("''::text", b""),
        ("B'101'::\"bit\"", b"101"),
        ("'x'::public.\"Odd-Type\"", b"x"),
        ("NULL::character varying", None),
        ("nextval('a_seq'::regclass)", None),
        ("now()", None),
        ("CURRENT_TIMESTAMP", None),
        ("(1 + 1)", None),
        ("('a'::text || 'b'::text)", None),
        ("'a'::text || 'b'::text", None),
        ("('now'::text)::date", None),
    ],
)
def test_only_a_constant_is_a_default(expression: str, constant: bytes | None) -> None:
    assert constant_of(expression) == constant


def test_defaults_are_values_of_the_column(database: psycopg.Connection[Any]) -> None:
    run(database, ["drop type if exists mood cascade", "create type mood as enum ('sad', 'it''s ok')"])
    table = _table(
        database,
        "a int default 1 + 1, b numeric(5,2) default 1.5, c numeric(5,2) default 1.555, d numeric default 2, "
        "e mood default 'it''s ok', f varchar(3) default null, g bit(3) default '011', h timestamptz(0) default "
        "'2026-01-01 00:00+00', i int[] default '{1}', j bytea default 'x', k float8 default 'NaN', l int2 default -7, "
        "m text not null default 'it''s', n serial, o date default 'infinity'",
    )
    defaults: dict[str, Any] = {
        name: column and column.schema.default for name, column in columns_of(database, table, DEFAULTS).items()
    }
    assert math.isnan(defaults.pop("k"))
    assert {name: value for name, value in defaults.items() if value is not None} == {
        "b": Decimal("1.50"),
        "e": "it's ok",
        "g": b"\x03",
        "h": "2026-01-01T00:00:00Z",
        "l": -7,
        "m": "it's",
        "n": 0,
        "o": -2_147_472_692,
    }
    assert not _column(database, table, "m").schema.optional
    text_mode = TypeSettings(decimal="string", time="connect")
    assert _column(database, table, "b", text_mode).schema.default == "1.50"
    assert _column(database, table, "d", text_mode).schema.default == "2"


@pytest.mark.parametrize(
    ("text", "digits", "expected"),
    [
        ("$1,234.56", 2, "1234.56"),
        ("-$0.01", 2, "-0.01"),
        ("($1,234,567.89)", 2, "-1234567.89"),
        ("1.234,56 €", 2, "1234.56"),
        ("-1.234.567,00 €", 2, "-1234567.00"),
        ("1 234,50 €", 2, "1234.50"),
        ("¥1,234", 0, "1234"),
        ("KWD 1.234", 3, "1.234"),
        ("CHF 1'234.50", 2, "1234.50"),
        ("$92,233,720,368,547,758.07", 2, "92233720368547758.07"),
    ],
)
def test_money_is_read_in_the_way_of_any_locale(text: str, digits: int, expected: str) -> None:
    assert money_text(text, digits) == expected


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"decimal": "exact"}, "decimal.handling.mode"),
        ({"time": "millis"}, "time.precision.mode"),
        ({"binary": "raw"}, "binary.handling.mode"),
        ({"interval": "iso"}, "interval.handling.mode"),
        ({"hstore": "dict"}, "hstore.handling.mode"),
        ({"money_digits": -1}, "money.fraction.digits"),
        ({"placeholder": "hex:zz"}, "unavailable.value.placeholder"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any], setting: str) -> None:
    with pytest.raises(InvalidConnectorConfig, match=setting):
        replace(DEFAULTS, **wrong)


def test_schemas_of_numbers_and_bits_have_their_sizes(database: psycopg.Connection[Any]) -> None:
    assert _schema_of(database, "bit(10)") == {
        "type": "bytes",
        "optional": True,
        "name": "io.debezium.data.Bits",
        "version": 1,
        "parameters": {"length": "10"},
    }
    assert _schema_of(database, "varbit")["parameters"] == {"length": "2147483647"}
    assert _schema_of(database, "numeric(3,-2)")["parameters"] == {"scale": "0", "connect.decimal.precision": "5"}
    assert _schema_of(database, "numeric(2,5)")["parameters"] == {"scale": "5", "connect.decimal.precision": "2"}
    assert _schema_of(database, "money", TypeSettings(money_digits=3))["parameters"] == {"scale": "3"}
    assert _schema_of(database, "bit")["type"] == ConnectType.BOOLEAN
