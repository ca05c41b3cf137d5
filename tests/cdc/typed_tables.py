"""Tables with every column type of PostgreSQL, with normal and edge values.

Each table has rows before the connector starts (the snapshot reads them) and the same values again in the stream, with
other ids. All have replica identity full, so an update and a delete show them in `before`, too. XML has a column
without values, because the wheel's server cannot read any.
"""

from __future__ import annotations

from typing import Final

EXTENSIONS: Final = tuple(f"create extension {name}" for name in ("hstore", "citext", "ltree"))
TYPES: Final = (
    "create type mood as enum ('sad', 'ok', 'very happy')",
    "create type pair as (a int, b text)",
    "create domain positive as int check (value > 0)",
    "create domain price as numeric(8,3)",
    "create domain email as text",
)

_COLUMNS: Final = {
    "t_number": (
        "b bool, b1 bit(1), b10 bit(10), vb varbit, vb20 varbit(20), i2 int2, i4 int4, i8 int8, o oid, f4 real, "
        "f8 float8, n102 numeric(10,2), n38 numeric(38,0), n5 numeric(5), n0 numeric, nneg numeric(3,-2), "
        "m money, p positive, pr price, nn int not null"
    ),
    "t_text": (
        'c5 char(5), bp bpchar, vc varchar, vc10 varchar(10), t text, ci citext, na name, c1 "char", u uuid, '
        "j json, jb jsonb, x xml, lt ltree, h hstore, e mood, em email, tv tsvector, nn text not null"
    ),
    "t_time": (
        "d date, t time, t0 time(0), t3 time(3), tz timetz, tz3 timetz(3), ts timestamp, ts0 timestamp(0), "
        "ts3 timestamp(3), ts6 timestamp(6), tstz timestamptz, tstz0 timestamptz(0), tstz3 timestamptz(3), "
        "iv interval, iv3 interval(3)"
    ),
    "t_net": (
        "ip inet, net cidr, mac macaddr, mac8 macaddr8, r4 int4range, r8 int8range, rn numrange, "
        "rts tsrange, rtz tstzrange, rd daterange"
    ),
    "t_binary": "raw bytea, nn bytea not null",
    "t_point": "pt point",
    "t_array": (
        "a2 int2[], a4 int4[], a8 int8[], ab bool[], af real[], ad float8[], an numeric[], an102 numeric(10,2)[], "
        "at text[], av varchar(5)[], ac char(3)[], au uuid[], aj json[], ajb jsonb[], ada date[], ati time[], "
        "atz timetz[], ats timestamp[], atstz timestamptz[], aip inet[], acidr cidr[], amac macaddr[], "
        "ar int4range[], aci citext[], ae mood[], ao oid[]"
    ),
    "t_array_odd": (
        "aby bytea[], aiv interval[], abit bit(3)[], am money[], ah hstore[], ax xml[], apt point[], a2d int[][]"
    ),
    "t_unknown": (
        "co pair, bx box, ln line, ls lseg, pa path, po polygon, ci circle, mr int4multirange, tq tsquery, lsn pg_lsn, "
        "xi xid, rc regclass, jp jsonpath, aco pair[], last int"
    ),
}

_ROWS: Final = {
    "t_number": (
        "true, '1', '1010000011', '10110', '111', 1, 2, 3, 4, 1.5, 2.25, 123.45, 12345678901234567890, 321, 3.14159, "
        "12300, '1234.56', 7, 12.345, 5",
        "false, '0', '0000000001', '', '1', -32768, -2147483648, -9223372036854775808, 4294967295, 'NaN', 'Infinity', "
        "-99999999.99, -99999999999999999999999999999999999999, -99999, -0.00001, -99900, '-92233720368547758.08', "
        "2147483647, -99999.999, 0",
        "null, null, '1111111111', '111111111', '00000000000000000001', 32767, 2147483647, 9223372036854775807, 0, "
        "'-Infinity', 1e-300, 0, 0, 0, 'NaN', 0, 0, 1, 0, 0",
        "null, null, null, null, null, null, null, null, null, 3.4e38, 1.7e308, 0.10, 1, 1, 100, 500, '0.01', 1, "
        "0.100, -1",
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, "
        "null, 1",
    ),
    "t_text": (
        "'ab', 'ab ', 'abc', 'abcdefghij', 'text', 'CiText', 'a_name', 'x', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', "
        '\'{"b": 1,  "a":[1,2]}\', \'{"b": 1,  "a":[1,2]}\', null, \'Top.Child1\', '
        "'\"k\"=>\"v\", \"n\"=>NULL', 'ok', 'a@b.c', 'a fat cat'::tsvector, 'nn'",
        "'', '', '', 'äöü€😀', 'Zeile\n\t\"zwei\" \\ ''q'' 😀 \u2028', 'ß', 'ünïcode', '', "
        "'00000000-0000-0000-0000-000000000000', '  null ', '\"text\"', null, '', '', 'very happy', '', "
        "to_tsvector('english', 'The quick brown foxes jumped'), ''",
        "'12345', repeat('x', 100), repeat('y', 1000), null, repeat('z', 5000), null, null, null, null, '1e3', "
        "'1e3', null, 'a.b.c', 'a=>1, b=>\"x y\", \"c\\\"d\"=>\"\"', 'sad', 'x', 'a:1A b:2B'::tsvector, 'x'",
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, 'n'",
    ),
    "t_time": (
        "'2026-02-28', '13:14:15.123456', '13:14:15', '13:14:15.123', '13:14:15.123456+02', '13:14:15.123+02', "
        "'2026-02-28 13:14:15.123456', '2026-02-28 13:14:15', '2026-02-28 13:14:15.123', "
        "'2026-02-28 13:14:15.123456', '2026-02-28 13:14:15.123456+02', '2026-02-28 13:14:15+02', "
        "'2026-02-28 13:14:15.12+02', '1 year 2 mons 3 days 04:05:06.789', '-1 day -00:00:00.001'",
        "'0001-01-01', '00:00:00', '00:00:00', '00:00:00', '00:00:00+00', '23:59:59.999-15:59', "
        "'0001-01-01 00:00:00', '1970-01-01 00:00:00', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999', "
        "'0001-01-01 00:00:00+00', '1970-01-01 00:00:00+00', '1969-12-31 23:59:59.999+00', '0', '-1 year'",
        "'9999-12-31', '23:59:59.999999', '23:59:59', '23:59:59.999', '23:59:59.999999+15:59', '12:00:00.100-00:30', "
        "'9999-12-31 23:59:59.999999', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999', "
        "'2026-03-29 02:30:00.100000', '9999-12-31 23:59:59.999999+00', '2026-03-29 02:30:00+01', "
        "'2026-10-25 02:30:00.100+02', '100 years 11 mons 30 days 23:59:59.999999', '1 mon'",
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, null",
    ),
    "t_net": (
        "'192.168.1.1', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '[1,5)', '(,10]', '[1.5,2.5)', "
        "'[2026-01-01 00:00,2026-01-02 00:00)', '[2026-01-01 00:00+00,2026-01-02 00:00+00)', "
        "'[2026-01-01,2026-02-01)'",
        "'::1/64', '2001:db8::/32', 'ff:ff:ff:ff:ff:ff', '00:00:00:00:00:00:00:00', 'empty', '(,)', '(,5)', "
        "'(,2026-01-01 00:00:00.5]', '[2026-01-01 00:00+02,)', '(,)'",
        "null, null, null, null, null, null, null, null, null, null",
    ),
    "t_binary": ("'\\x0001fe7fff', '\\x00'", "'', ''", "null, 'text'", "decode(repeat('ab', 40), 'hex'), '\\xff'"),
    "t_point": ("'(1.5,-2.5)'", "'(0,0)'", "'(1e300,-1e-300)'", "null"),
    "t_array": (
        "'{1,2}', '{1,NULL,3}', '{9223372036854775807}', '{t,f,NULL}', '{1.5,NaN}', '{2.25,Infinity}', "
        "'{1.5,2.25,NULL}', '{1.50,-2.25}', '{a,\"b c\",\"NULL\",NULL,\"q\\\"u\\\\\"}', '{ab,cde}', '{a,abc}', "
        "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', array['{\"a\":  1}'::json], array['{\"a\":  1}'::jsonb], "
        "'{2026-02-28,1970-01-01}', '{13:14:15.123456}', '{13:14:15.123456+02}', "
        "'{2026-02-28 13:14:15.123456}', '{2026-02-28 13:14:15.123456+02}', '{192.168.1.1,::1}', "
        "'{10.0.0.0/8}', '{08:00:2b:01:02:03}', '{\"[1,5)\",empty}', '{CiText}', '{ok,\"very happy\"}', "
        "'{1,4294967295}'",
        "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', "
        "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, "
        "null, null, null, null, null, null, null, null",
    ),
    "t_array_odd": (
        "array['\\x0001'::bytea], '{1 day}', '{101,010}', '{1.50}', array['a=>1'::hstore], null, "
        "array['(1,2)'::point], '{{1,2},{3,4}}'",
        "null, null, null, null, null, null, null, null",
    ),
    "t_unknown": (
        "'(1,x)', '(1,1),(0,0)', '{1,2,3}', '[(0,0),(1,1)]', '[(0,0),(1,1)]', '((0,0),(1,1),(1,0))', '<(0,0),1>', "
        "'{[1,3),[5,8)}', 'fat & cat', '0/16B3748', '42', 'pg_class', '$.a', '{\"(1,x)\"}', 1",
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, 2",
    ),
}

EDGE_TIMES: Final = (
    "create table t_edge (id int primary key, d date, ts timestamp, ts3 timestamp(3), tstz timestamptz, t time, "
    "tz timetz, n numeric)",
    "alter table t_edge replica identity full",
)
_EDGE_ROWS: Final = (
    "'infinity', 'infinity', 'infinity', 'infinity', '24:00:00', '24:00:00+00', null",
    "'-infinity', '-infinity', '-infinity', '-infinity', null, null, null",
    "'0044-03-15 BC', '0044-03-15 12:00:00 BC', '0044-03-15 12:00:00 BC', '0044-03-15 12:00:00+00 BC', null, null, 0",
    "'1582-10-10', '1582-10-10 00:00', '1582-10-10 00:00', '1582-10-10 00:00+00', null, null, 1e20",
    "'5874897-12-31', '294276-12-31 23:59:59', null, '294276-12-31 23:59:59+00', null, null, 1e-20",
)


def creation(without: tuple[str, ...] = ()) -> list[str]:
    """Return the statements that create the tables, except some."""
    statements = [*EXTENSIONS, *TYPES]
    for table, columns in _COLUMNS.items():
        if table not in without:
            statements += [
                f"create table {table} (id int primary key, {columns})",
                f"alter table {table} replica identity full",
            ]
    return statements


def rows(first_id: int, without: tuple[str, ...] = ()) -> list[str]:
    """Return the statements that insert a row for each set of values."""
    return [
        f"insert into {table} values ({identifier}, {values})"
        for table, all_values in _ROWS.items()
        if table not in without
        for identifier, values in enumerate(all_values, first_id)
    ]


def edges(first_id: int) -> list[str]:
    """Return the statements that insert rows with moments at and beyond the ends."""
    return [f"insert into t_edge values ({number}, {values})" for number, values in enumerate(_EDGE_ROWS, first_id)]
