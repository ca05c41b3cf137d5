"""Events of MariaDB's changes: operations, keys, transactions, DDL, and what the binlog may also hold."""

from __future__ import annotations

import pytest
from tests.cdc.mariadb_reading import MariadbReader, has
from tests.cdc.mariadb_server import MariadbDatabase, MariadbServer, mariadb, needs_mariadb

from strandline.connect.failures import ConnectFailed, RetriableFailure

__all__ = ["mariadb"]
pytestmark = pytest.mark.slow


def _started(database: MariadbDatabase, *before: str, **settings: str) -> MariadbReader:
    """Return a reader whose snapshot is behind it."""
    database.run(*before, "create table started (id int primary key)", "insert into started values (0)")
    reader = MariadbReader(database, **settings)
    reader.read(has("started", 1))
    return reader


def _ended(reader: MariadbReader) -> None:
    """Read everything until now."""
    reader.database.run("insert into started select max(id) + 1 from started")
    count = len(reader.of("started")) + 1
    reader.read(has("started", count))


def test_operations_have_whole_rows_keys_and_tombstones(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "create table t (id int primary key, v varchar(9), w int not null)")
    mariadb.run(
        "insert into t values (1, 'a', 7), (2, 'b', 8)",
        "update t set v = 'c' where id = 1",
        "update t set id = 3 where id = 2",
        "delete from t where id = 1",
    )
    _ended(reader)
    a, b, c = {"id": 1, "v": "a", "w": 7}, {"id": 2, "v": "b", "w": 8}, {"id": 1, "v": "c", "w": 7}
    moved = b | {"id": 3}
    found = [
        (each.key["id"], each.value and (each.value["op"], each.value["before"], each.value["after"]))
        for each in reader.of("t")
    ]
    assert found == [
        (1, ("c", None, a)),
        (2, ("c", None, b)),
        (1, ("u", a, c)),
        (2, ("d", b, None)),
        (2, None),
        (3, ("c", None, moved)),
        (1, ("d", c, None)),
        (1, None),
    ]
    inserted = reader.values("t")[:2]
    assert [each["source"]["row"] for each in inserted] == [0, 1]
    assert inserted[0]["source"]["gtid"] == inserted[1]["source"]["gtid"]
    assert inserted[0]["source"]["file"] == "binlog.000001"


def test_a_row_of_a_large_value_and_of_a_table_without_a_key_comes_whole(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "set global max_allowed_packet=1073741824", "create table t (v longblob)")
    mariadb.run("insert into t values (repeat('x', 20000000))", "delete from t")
    _ended(reader)
    inserted, deleted = reader.of("t")
    assert inserted.key is None
    assert len(inserted.value["after"]["v"]) == len(deleted.value["before"]["v"]) == 20_000_000


def test_names_that_need_quotes_are_captured(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "create table `odd ``näme %s` (`select` int primary key, `a``b %d` int)")
    mariadb.run("insert into `odd ``näme %s` values (1, 2)")
    _ended(reader)
    again = MariadbReader(mariadb)
    again.read(has("started", 2))
    topic = "odd__n_me__s"
    assert reader.values(topic)[0]["after"] == again.values(topic)[0]["after"] == {"select": 1, "a`b %d": 2}


def test_columns_and_keys_follow_ddl(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "create table t (id int primary key, v int)")
    mariadb.run(
        "insert into t values (1, 1)",
        "alter table t add column w varchar(5) not null default 'd' after id",
        "insert into t values (2, 'x', 2)",
        "alter table t drop primary key, drop column v, add primary key (w)",
        "insert into t values (3, 'y')",
        "rename table t to t2",
        "insert into t2 values (4, 'z')",
        "drop table t2",
    )
    _ended(reader)
    assert [each.value["after"] for each in reader.of("t")] == [
        {"id": 1, "v": 1},
        {"id": 2, "w": "x", "v": 2},
        {"id": 3, "w": "y"},
    ]
    assert [each.key for each in reader.of("t")] == [{"id": 1}, {"id": 2}, {"w": "y"}]
    assert reader.of("t2")[0].key == {"w": "z"}
    changes = [
        (each["databaseName"], each["ddl"].split()[0], [(one["type"], one["id"]) for one in each["tableChanges"]])
        for each in reader.schema_changes[2:]
    ]
    name = mariadb.name
    assert changes == [
        (name, "alter", [("ALTER", f'"{name}"."t"')]),
        (name, "alter", [("ALTER", f'"{name}"."t"')]),
        (name, "rename", [("ALTER", f'"{name}"."t2"')]),
        (name, "DROP", [("DROP", f'"{name}"."t2"')]),
    ]


def test_truncate_is_an_event_if_it_is_not_skipped(mariadb: MariadbDatabase) -> None:
    reader = _started(
        mariadb, "create table t (id int primary key)", "insert into t values (1)", skipped_operations="none"
    )
    mariadb.run("truncate table t")
    _ended(reader)
    assert [(each.key, each.value["op"]) for each in reader.of("t")] == [({"id": 1}, "r"), (None, "t")]


def test_tables_and_columns_are_chosen(mariadb: MariadbDatabase) -> None:
    name = mariadb.name
    before = [f"create table {each} (id int primary key, v int, w int)" for each in ("a", "b")]
    reader = _started(
        mariadb,
        *before,
        table_include_list=f"{name}.a,{name}.started",
        column_exclude_list=f"{name}.a.w",
        message_key_columns=f"{name}.a:v",
    )
    mariadb.run("insert into a values (1, 2, 3)", "insert into b values (1, 2, 3)", "alter table b add column x int")
    _ended(reader)
    assert [(each.key, each.value["after"]) for each in reader.of("a")] == [({"v": 2}, {"id": 1, "v": 2})]
    assert not reader.of("b")
    assert not [each for each in reader.schema_changes if "`b`" in each["ddl"] or "table b" in each["ddl"]]


def test_transactions_have_begin_end_and_places(mariadb: MariadbDatabase) -> None:
    reader = _started(
        mariadb,
        "create table a (id int primary key)",
        "create table b (id int primary key)",
        provide_transaction_metadata="true",
    )
    connection = mariadb.connect()
    with connection.cursor() as cursor:
        cursor.execute("begin")
        cursor.execute("insert into a values (1), (2)")
        cursor.execute("insert into b values (1)")
        cursor.execute("commit")
    connection.close()
    _ended(reader)
    begin, end = [each.value for each in reader.store.records if each.topic == "shop.transaction"][:2]
    assert (begin["status"], end["status"], end["event_count"]) == ("BEGIN", "END", 3)
    assert begin["id"] == end["id"] == reader.values("a")[0]["source"]["gtid"]
    places = [each["transaction"] for each in (*reader.values("a"), *reader.values("b"))]
    assert [(each["total_order"], each["data_collection_order"]) for each in places] == [(1, 1), (2, 2), (3, 1)]


def test_what_is_rolled_back_to_a_savepoint_is_no_event_although_the_binlog_has_it(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "create table t (id int primary key)", "create table m (id int) engine=myisam")
    connection = mariadb.connect()
    with connection.cursor() as cursor:
        for each in (
            "begin",
            "insert into t values (1)",
            "insert into m values (1)",
            "savepoint `a b`",
            "insert into t values (2)",
            "insert into m values (2)",
            "rollback to `a b`",
            "insert into t values (3)",
            "commit",
        ):
            cursor.execute(each)
    connection.close()
    _ended(reader)
    assert [each["after"]["id"] for each in reader.values("t")] == [1, 3]
    assert [each["after"]["id"] for each in reader.values("m")] == [1, 2]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_xa_transactions_are_events_when_they_commit(is_restarted: bool) -> None:
    needs_mariadb()
    # Of its own, because a prepared transaction holds up every snapshot of a server.
    server = MariadbServer().start()
    try:
        database = server.fresh_database()
        reader = _started(database, "create table t (id int primary key)")
        for number in (1, 2):
            xid = f"'x{number}', 'b', 7"
            database.run(f"xa start {xid}", f"insert into t values ({number})", f"xa end {xid}", f"xa prepare {xid}")
        if is_restarted:
            _ended(reader)
            assert not reader.of("t")
            with pytest.raises(RetriableFailure, match="2 prepared XA transactions"):
                MariadbReader(database).read(has("started", 1))
        database.run("xa rollback 'x1', 'b', 7", "insert into t values (3)", "xa commit 'x2', 'b', 7")
        _ended(reader)
        assert [each["after"]["id"] for each in reader.values("t")] == [3, 2]
        assert "xa" not in reader.store.all()[0][1]
    finally:
        server.remove()


def test_a_large_transaction_comes_in_open_parts(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "create table t (id int primary key, v varchar(200))", max_batch_size="50")
    mariadb.run("insert into t select seq, repeat('x', 200) from seq_1_to_1000")
    with_kill = 5
    reader.read(has("t", 1000), kill_at=with_kill)
    assert not reader.of("t")
    assert reader.open_parts == with_kill
    reader.read(has("t", 1000))
    assert [each["after"]["id"] for each in reader.values("t")] == list(range(1, 1001))


def test_statements_are_in_events_if_they_are_asked_for(mariadb: MariadbDatabase) -> None:
    reader = _started(mariadb, "create table t (id int primary key)", include_query="true")
    mariadb.run("insert into t values (1) /* ü */")
    _ended(reader)
    assert reader.values("t")[0]["source"]["query"] == "insert into t values (1) /* ü */"


def test_heartbeats_come_while_nothing_changes(mariadb: MariadbDatabase) -> None:
    reader = _started(
        mariadb,
        "create table t (id int auto_increment primary key)",
        heartbeat_interval_ms="50",
        heartbeat_action_query=f"insert into {mariadb.name}.t values ()",
    )
    reader.read(has("t", 2))
    beats = [each for each in reader.store.records if each.topic == "__debezium-heartbeat.shop"]
    assert beats[0].key == {"serverName": "shop"}
    assert beats[0].value["ts_ms"] > 0


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ("set binlog_format=statement", "set another binlog_format than ROW: 'insert into t values"),
        ("set binlog_row_image=minimal", "another binlog_row_image than FULL"),
    ],
)
def test_a_session_with_another_binlog_is_named(mariadb: MariadbDatabase, session: str, words: str) -> None:
    reader = _started(mariadb, "create table t (id int primary key, v int)")
    connection = mariadb.connect()
    with connection.cursor() as cursor:
        cursor.execute(session)
        cursor.execute("insert into t values (1, 1)")
        cursor.execute("update t set v = 2")
    connection.close()
    with pytest.raises(ConnectFailed, match=words):
        _ended(reader)


def test_compressed_binlogs_without_checksums_are_read() -> None:
    needs_mariadb()
    server = MariadbServer(log_bin_compress="1", log_bin_compress_min_len="10", binlog_checksum="NONE").start()
    try:
        reader = _started(server.fresh_database(), "create table t (id int primary key, v text)")
        reader.database.run(
            "insert into t values (1, repeat('x', 1000))",
            "update t set v = repeat('y', 1000)",
            "delete from t",
            f"alter table t add column w int comment '{'z' * 500}'",
        )
        _ended(reader)
        assert [each["op"] for each in reader.values("t")] == ["c", "u", "d"]
        assert reader.values("t")[1]["after"]["v"] == "y" * 1000
        assert reader.schema_changes[-1]["ddl"].endswith("z'")
    finally:
        server.remove()
