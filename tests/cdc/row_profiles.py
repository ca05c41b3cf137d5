"""Profiles of rows: snapshot, changes, identities, keys, large values, shapes of tables."""

from __future__ import annotations

from typing import Final

from tests.cdc.profile import CdcProfile, Seen

CUSTOMERS: Final = (
    "create table customers (id int primary key, name text not null, email varchar(100) unique, "
    "credit numeric(10,2) default 0.00, joined timestamptz)"
)

ROW_PROFILES: Final = (
    CdcProfile(
        "snapshot",
        {},
        (
            CUSTOMERS,
            "create table orders (id bigint primary key, customer int references customers, total numeric(12,2))",
            "create table logs (line text)",
            "create table empty (id int primary key)",
            "insert into customers select i, 'name ' || i, i || '@x.y', i * 1.5, '2026-01-01 00:00+00' "
            "from generate_series(1, 5) i",
            "insert into orders select i, i, i * 10 from generate_series(1, 3) i",
            "insert into logs values ('one'), ('two'), (null)",
        ),
        (
            "insert into customers values (6, 'six', null, default, null)",
            "insert into orders values (4, 6, 1.00)",
            "insert into logs values ('three')",
        ),
        is_default=True,
    ),
    CdcProfile(
        "rows",
        {},
        (CUSTOMERS, "insert into customers values (1, 'one', 'one@x.y', 1.50, '2026-01-01 00:00+00')"),
        (
            "insert into customers values (2, 'two', null, default, null)",
            (
                "insert into customers values (3, 'three', 'x', 3, null)",
                "insert into customers values (4, 'f', 'y', 4, null)",
            ),
            "update customers set name = 'ONE' where id = 1",
            "update customers set name = name where id = 1",
            "update customers set id = 20 where id = 2",
            "update customers set id = id + 100, name = 'moved'",
            "delete from customers where id = 101",
            "delete from customers",
            (
                "insert into customers values (7, 'a', 'a', 1, null)",
                "update customers set name = 'b'",
                "delete from customers",
            ),
            "insert into customers values (8, 'again', 'a', 1, null)",
            "insert into customers values (8, 'other', 'a', 1, null) on conflict (id) do update set name = 'no'",
        ),
        is_default=True,
    ),
    CdcProfile(
        "identities",
        {},
        (
            "create table i_default (id int primary key, code text not null unique, v text, n int not null default 7)",
            "create table i_full (id int primary key, code text not null unique, v text, n int not null default 7)",
            "create table i_index (id int primary key, code text not null unique, v text, n int not null default 7)",
            "create table i_nothing (id int primary key, code text not null unique, v text, n int not null default 7)",
            "alter table i_full replica identity full",
            "alter table i_index replica identity using index i_index_code_key",
            "create table i_index_only (code text not null unique, v text, n int not null default 7)",
            "alter table i_index_only replica identity using index i_index_only_code_key",
            "alter table i_nothing replica identity nothing",
            "insert into i_index_only values ('a', 'one', 1)",
            *(f"insert into i_{each} values (1, 'a', 'one', 1)" for each in ("default", "full", "index", "nothing")),
        ),
        (
            *(
                f"insert into i_{each} values (2, 'b', 'two', 2), (3, 'c', null, 3)"
                for each in ("default", "full", "index", "nothing")
            ),
            *(f"update i_{each} set v = 'x', n = n + 1" for each in ("default", "full", "index")),
            *(f"update i_{each} set v = v" for each in ("default", "full", "index")),
            *(f"update i_{each} set id = id + 10 where id = 1" for each in ("default", "full", "index")),
            *(f"update i_{each} set code = code || 'x' where id = 2" for each in ("default", "full", "index")),
            *(f"delete from i_{each}" for each in ("default", "full", "index")),
            ("alter table i_default replica identity full", "insert into i_default values (4, 'd', 'v', 4)"),
            "update i_default set v = 'full now' where id = 4",
            "insert into i_index_only values ('b', 'two', 2)",
            "update i_index_only set v = 'x'",
            "update i_index_only set code = 'c' where code = 'b'",
            "delete from i_index_only",
        ),
        is_default=True,
    ),
    CdcProfile(
        "toast",
        {},
        (
            "create table big (id int primary key, small text, t text, b bytea, a int[], ta text[], n int)",
            "create table big_full (id int primary key, small text, t text, b bytea, a int[], ta text[], n int)",
            "alter table big_full replica identity full",
            *(
                f"alter table big{each} alter {c} set storage external"
                for each in ("", "_full")
                for c in ("t", "b", "a", "ta")
            ),
        ),
        tuple(
            statement
            for each in ("", "_full")
            for statement in (
                f"insert into big{each} select 1, 's', repeat('t', 4000), decode(repeat('ab', 4000), 'hex'), "
                "array_fill(7, array[1500]), array_fill('text'::text, array[1000]), 1",
                f"update big{each} set n = 2",
                f"update big{each} set t = repeat('u', 4000)",
                f"update big{each} set id = 2",
                f"update big{each} set n = 3, t = null",
                f"delete from big{each}",
            )
        ),
    ),
    CdcProfile(
        "toast-placeholder",
        {"unavailable.value.placeholder": "hex:4142"},
        (
            "create table big (id int primary key, t text, b bytea, n int)",
            "alter table big alter t set storage external",
            "alter table big alter b set storage external",
        ),
        (
            "insert into big select 1, repeat('t', 4000), decode(repeat('ab', 4000), 'hex'), 1",
            "update big set n = 2",
        ),
    ),
    CdcProfile(
        "truncate",
        {"skipped.operations": "none"},
        (
            "create table a (id int primary key)",
            "create table b (id int primary key, a int references a)",
            "insert into a values (1)",
        ),
        (
            "insert into b values (1, 1)",
            "truncate a, b restart identity",
            ("insert into a values (5)", "truncate a cascade", "insert into a values (6)"),
        ),
    ),
    CdcProfile(
        "skipped",
        {"skipped.operations": "d,u"},
        (CUSTOMERS,),
        (
            "insert into customers values (1, 'one', 'x', 1, null)",
            "update customers set name = 'x'",
            "update customers set id = 2",
            "delete from customers",
            "truncate customers",
            "insert into customers values (3, 'three', 'x', 1, null)",
        ),
    ),
    CdcProfile(
        "keys",
        {"message.key.columns": r"public\.keyless:a,b"},
        (
            "create table keyless (a int, b text, c text)",
            "create table plain (a int, b text)",
            "create table composite (b text, n int, a int, v text, primary key (a, b))",
            "alter table keyless replica identity full",
            "alter table composite replica identity full",
            "insert into keyless values (1, 'x', 'y')",
            "insert into plain values (1, 'x')",
            "insert into composite values ('b', 1, 2, 'v')",
        ),
        (
            "insert into keyless values (2, null, 'z')",
            "update keyless set c = 'new' where a = 1",
            "update keyless set b = 'newkey' where a = 1",
            "delete from keyless",
            "insert into plain values (2, 'y')",
            "insert into composite values ('bb', 2, 3, 'w')",
            "update composite set v = 'x'",
            "update composite set b = 'c' where a = 3",
            "delete from composite",
        ),
        is_default=True,
    ),
    CdcProfile(
        "keys-unique",
        {},
        ("create table only_unique (id int not null unique, v text)", "insert into only_unique values (1, 'v')"),
        ("insert into only_unique values (2, 'w')",),
    ),
    CdcProfile(
        "keys-lacking",
        {"message.key.columns": r"public\.other:code"},
        ("create table other (id int primary key, code text not null)", "insert into other values (1, 'c')"),
        (
            "insert into other values (2, 'd')",
            "update other set code = 'e' where id = 2",
            "delete from other where id = 2",
        ),
    ),
    CdcProfile(
        "ddl",
        {},
        ("create table d (id int primary key, a text, b int)", "insert into d values (1, 'a', 1)"),
        (
            "insert into d values (2, 'a', 2)",
            Seen("public.d", 2),
            "alter table d add c text default 'new'",
            "insert into d values (3, 'a', 3, 'c')",
            Seen("public.d", 3),
            "alter table d drop b",
            "insert into d values (4, 'a', 'c')",
            Seen("public.d", 4),
            "alter table d rename a to alpha",
            "update d set alpha = 'renamed' where id = 4",
            Seen("public.d", 5),
            "alter table d alter c type varchar(10)",
            "insert into d values (5, 'a', 'c')",
            Seen("public.d", 6),
            "alter table d alter id type bigint",
            "delete from d where id = 5",
            Seen("public.d", 8),
            (
                "insert into d values (6, 'a', 'c')",
                "alter table d add e int not null default 3",
                "insert into d values (7, 'a', 'c', 7)",
                "alter table d drop c",
                "insert into d values (8, 'a', 8)",
            ),
            Seen("public.d", 11),
            "create table fresh (id int primary key, v text)",
            "insert into fresh values (1, 'new table')",
            Seen("public.fresh", 1),
            "alter table fresh rename to stale",
            "insert into stale values (2, 'renamed table')",
            Seen("public.stale", 1),
            "alter table d drop constraint d_pkey, add primary key (id, alpha)",
            "insert into d values (9, 'a', 9)",
            Seen("public.d", 12),
            ("create table gone (id int primary key)", "insert into gone values (1)", "drop table gone"),
            ("insert into stale values (3, 'x')", "drop table stale"),
        ),
    ),
    CdcProfile(
        "defaults",
        {},
        (
            "create table defaults (id serial primary key, i int default 5, ni int not null default 6, "
            "t text default 'it''s', nt text not null default '', c varchar(5) default 'ab', b bool default true, "
            "n numeric(6,2) default 1.5, nv numeric default 2.25, f float8 default 1.25, d date default '2026-01-02', "
            "ts timestamp default '2026-01-02 03:04:05', tz timestamptz default '2026-01-02 03:04:05+00', "
            "now timestamptz default now(), tm time default '03:04:05', by bytea default '\\x0102', "
            "j jsonb default '{}', u uuid default '00000000-0000-0000-0000-000000000001', a int[] default '{1,2}', "
            "iv interval default '1 day', m money default 1, nul text default null, e int default 1 + 1, "
            "bt bit(3) default '101', g int generated always as (5) stored, idn int generated by default as identity)",
            "insert into defaults default values",
        ),
        (
            "insert into defaults default values",
            "update defaults set i = null, t = null, n = null, now = '2026-01-01 00:00+00' where id = 2",
            "delete from defaults where id = 2",
        ),
    ),
)
