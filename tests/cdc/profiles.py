"""All profiles by their names; those of transactions, tables, transforms and signals are written here."""

from __future__ import annotations

from typing import Final

from tests.cdc.profile import MARKER, PREFIX, CdcProfile, Seen
from tests.cdc.row_profiles import CUSTOMERS, ROW_PROFILES
from tests.cdc.typed_profiles import TYPE_PROFILES

_TRANSACTIONS: Final = (
    CdcProfile(
        "transactions",
        {"provide.transaction.metadata": "true"},
        ("create table a (id int primary key, v text)", "create table b (id int primary key, v text)"),
        (
            "insert into a values (1, 'x')",
            ("insert into a values (2, 'x')", "insert into b values (1, 'y')", "update a set v = 'z'"),
            ("insert into a values (99, 'rolled back')", "rollback"),
            (
                "insert into a values (10, 'kept')",
                "savepoint s",
                "insert into a values (11, 'dropped')",
                "rollback to s",
                "savepoint s2",
                "insert into b values (12, 'kept')",
                "release s2",
            ),
            ("update b set id = id + 100", "delete from a where id = 1"),
        ),
        ends_with=(Seen("transaction", 10),),
    ),
    CdcProfile(
        "large",
        {},
        ("create table large (id int primary key, v text)",),
        (
            "insert into large select i, 'value ' || i from generate_series(1, 3000) i",
            ("insert into large select i, 'no' from generate_series(3001, 6000) i", "rollback"),
            "delete from large where id % 3 = 0",
        ),
    ),
    CdcProfile(
        "messages",
        {},
        ("create table a (id int primary key)",),
        (
            "select pg_logical_emit_message(true, 'invoice', 'in transaction')",
            "select pg_logical_emit_message(false, 'audit', decode('00ff41', 'hex'))",
            ("insert into a values (1)", "select pg_logical_emit_message(true, 'ü', '')", "insert into a values (2)"),
            ("select pg_logical_emit_message(true, 'invoice', 'rolled back')", "rollback"),
        ),
    ),
    CdcProfile(
        "messages-filtered",
        {"message.prefix.exclude.list": "aud.*", "binary.handling.mode": "base64"},
        (),
        (
            "select pg_logical_emit_message(true, 'invoice', 'kept')",
            "select pg_logical_emit_message(true, 'audit', 'not kept')",
        ),
    ),
    CdcProfile("heartbeat", {"heartbeat.interval.ms": "200"}, (), (), ends_with=(Seen("__debezium-heartbeat", 1),)),
)


def _partitioned(name: str, settings: dict[str, str]) -> CdcProfile:
    return CdcProfile(
        name,
        settings,
        (
            "create table p (id int, day date, v text, primary key (id, day)) partition by range (day)",
            "create table p_2025 partition of p for values from ('2025-01-01') to ('2026-01-01')",
            "create table p_2026 partition of p for values from ('2026-01-01') to ('2027-01-01')",
            "insert into p values (1, '2025-05-05', 'old'), (2, '2026-05-05', 'new')",
        ),
        (
            "insert into p values (3, '2025-06-06', 'old'), (4, '2026-06-06', 'new')",
            "update p set v = 'x' where id = 3",
            "update p set day = '2026-07-07' where id = 3",
            "delete from p where id = 4",
        ),
    )


_TABLES: Final = (
    _partitioned("partitioned", {}),
    _partitioned("partitioned-root", {"publish.via.partition.root": "true"}),
    _partitioned("partitioned-leaves", {"publish.via.partition.root": "false"}),
    CdcProfile(
        "names",
        {},
        (
            'create schema "Odd Schema"',
            'create table "Odd Schema"."Odd Näme" ("Id" int primary key, "select" text, "with space" text, '
            '"dash-ed" int, "ümläut" text, "quo""te" text, "1st" int)',
            """insert into "Odd Schema"."Odd Näme" values (1, 'a', 'b', 2, 'ü', 'q', 1)""",
            'create table "a.b" (id int primary key)',
            'insert into "a.b" values (1)',
        ),
        (
            """insert into "Odd Schema"."Odd Näme" values (2, 'a', 'b', 2, 'ü', 'q', 1)""",
            """update "Odd Schema"."Odd Näme" set "Id" = 3 where "Id" = 2""",
            """delete from "Odd Schema"."Odd Näme" """,
            'insert into "a.b" values (2)',
        ),
    ),
    CdcProfile(
        "names-avro",
        {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"},
        (
            'create table "Odd Näme" ("Id" int primary key, "with space" text, "dash-ed" int, "1st" int)',
            """insert into "Odd Näme" values (1, 'b', 2, 1)""",
        ),
        ("""insert into "Odd Näme" values (2, 'b', 2, 1)""", """delete from "Odd Näme" """),
    ),
    CdcProfile(
        "filtered",
        {
            "schema.include.list": "public",
            "table.include.list": rf"public\.wanted.*,public\.{MARKER}",
            "publication.autocreate.mode": "filtered",
        },
        (
            "create table wanted_a (id int primary key)",
            "create table unwanted (id int primary key)",
            "create schema other",
            "create table other.wanted_b (id int primary key)",
            "insert into wanted_a values (1)",
            "insert into unwanted values (1)",
            "insert into other.wanted_b values (1)",
        ),
        (
            "insert into wanted_a values (2)",
            "insert into unwanted values (2)",
            "insert into other.wanted_b values (2)",
        ),
    ),
    CdcProfile(
        "columns-excluded",
        {
            "column.exclude.list": r"public\.people\.(secret|photo)",
            "column.mask.with.5.chars": r"public\.people\.phone",
            "column.mask.with.0.chars": r"public\.people\.pin",
            "column.truncate.to.4.chars": r"public\.people\.bio",
            "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": r"public\.people\.email",
            "column.mask.hash.v2.SHA-256.with.salt.CzQMA0cB5K": r"public\.people\.mail2",
        },
        (
            "create table people (id int primary key, name text, secret text, photo bytea, phone varchar(20), "
            "pin text, bio text, email varchar(100), mail2 text)",
            "insert into people values (1, 'a', 's', '\\x01', '12345678', '99', 'long text', 'a@b.c', 'a@b.c')",
        ),
        (
            "insert into people values (2, 'a', 's', '\\x01', '1', '9', 'äöüßé', 'ä@b.c', 'ä@b.c')",
            "insert into people values (3, null, null, null, null, null, null, null, null)",
            "update people set secret = 'other' where id = 2",
        ),
    ),
    CdcProfile(
        "columns-included",
        {
            "column.include.list": rf"public\.people\.(id|name),public\.{MARKER}\.id",
            "skip.messages.without.change": "true",
        },
        (
            "create table people (id int primary key, name text, secret text)",
            "alter table people replica identity full",
            "insert into people values (1, 'a', 's')",
        ),
        (
            "insert into people values (2, 'a', 's')",
            "update people set secret = 'other'",
            "update people set name = 'b' where id = 1",
            "delete from people",
        ),
    ),
    CdcProfile(
        "no-tombstones",
        {"tombstones.on.delete": "false"},
        ("create table a (id int primary key, v text)", "insert into a values (1, 'a')"),
        ("delete from a", "insert into a values (2, 'b')", "update a set id = 3"),
    ),
)

_OUTBOX_TABLE: Final = (
    "create table outbox (id uuid primary key, aggregatetype text not null, aggregateid text not null, "
    "type text not null, payload jsonb, at timestamp, version int)"
)
_OUTBOX_ROWS: Final = (
    "insert into outbox values ('00000000-0000-0000-0000-000000000001', 'order', '7', 'OrderCreated', "
    '\'{"id": 7, "lines": [{"a": 1.5}]}\', \'2026-01-01 00:00\', 3)',
    "insert into outbox values ('00000000-0000-0000-0000-000000000002', 'customer', '8', 'Renamed', null, null, null)",
    "delete from outbox where aggregateid = '7'",
)


def _outbox(name: str, settings: dict[str, str], seen: tuple[Seen, ...] = ()) -> CdcProfile:
    transform = {
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.predicate": "isOutbox",
        "predicates": "isOutbox",
        "predicates.isOutbox.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.isOutbox.pattern": rf"{PREFIX}\.public\.outbox",
    }
    given = {f"transforms.outbox.{key}": value for key, value in settings.items()}
    return CdcProfile(name, transform | given, (_OUTBOX_TABLE,), _OUTBOX_ROWS, ends_with=seen)


def _flat(name: str, settings: dict[str, str]) -> CdcProfile:
    transform = {"transforms": "flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState"}
    given = {f"transforms.flat.{key}": value for key, value in settings.items()}
    return CdcProfile(
        name,
        transform | given,
        (CUSTOMERS, "insert into customers values (1, 'one', 'a', 1, null)"),
        (
            "insert into customers values (2, 'two', 'b', 2, '2026-01-01 00:00+00')",
            "update customers set name = 'TWO' where id = 2",
            "update customers set id = 3 where id = 2",
            "delete from customers where id = 1",
        ),
    )


_TRANSFORMED: Final = (
    _outbox("outbox", {}),
    _outbox(
        "outbox-fields",
        {
            "table.expand.json.payload": "true",
            "table.fields.additional.placement": "type:header:eventType,version:envelope,at:header",
            "route.topic.replacement": "events.${routedByValue}",
            "route.tombstone.on.empty.payload": "true",
            "table.field.event.timestamp": "at",
            "table.field.event.schema.version": "version",
        },
    ),
    _flat("flat", {}),
    _flat(
        "flat-rewrite",
        {
            "delete.tombstone.handling.mode": "rewrite",
            "add.fields": "op,table,lsn,source.ts_ms",
            "add.headers": "db,op",
        },
    ),
    _flat("flat-tombstone", {"delete.tombstone.handling.mode": "tombstone", "drop.fields.header.name": "none"}),
)

_SIGNALS: Final = "create table signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048))"
_CHUNKED: Final = (
    _SIGNALS,
    "create table a (id int primary key, v text)",
    "create table b (x int, y text, v text, primary key (x, y))",
    "insert into a select i, 'v' || i from generate_series(1, 7) i",
    "insert into b select i, 'y' || i, 'v' from generate_series(1, 3) i",
)
_INCREMENTAL: Final = (
    CdcProfile(
        "incremental",
        {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "3"},
        _CHUNKED,
        (
            "insert into a values (8, 'streamed')",
            """insert into signals values ('s1', 'execute-snapshot', '{"type": "incremental", "data-collections": """
            """["public.a", "public.b"]}')""",
            Seen("public.a", 7 + 1 + 8),
            Seen("public.b", 3 + 3),
            "update a set v = 'after' where id = 1",
        ),
    ),
    CdcProfile(
        "incremental-condition",
        {"signal.data.collection": "public.signals", "incremental.snapshot.watermarking.strategy": "insert_delete"},
        _CHUNKED,
        (
            """insert into signals values ('s1', 'execute-snapshot', '{"type": "incremental", "data-collections": """
            """["public.a"], "additional-conditions": [{"data-collection": "public.a", "filter": "id > 4"}]}')""",
            Seen("public.a", 7 + 3),
        ),
    ),
)

PROFILES: Final = {
    each.name: each for each in (*TYPE_PROFILES, *ROW_PROFILES, *_TRANSACTIONS, *_TABLES, *_TRANSFORMED, *_INCREMENTAL)
}
