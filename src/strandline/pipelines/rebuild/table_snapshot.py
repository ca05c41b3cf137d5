"""What a compacted topic says at some offsets: the newest record of each key, as bytes; and what makes one the other.

Records are folded a million at a time, so memory holds the keys and a stretch of the log. DuckDB does the folding and
the joining. Known gap: a key whose records lie in two partitions, as after partitions were added to a topic, counts
once for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import EARLIEST, LATEST, ClusterClient
from strandline.client.failures import TopicMissing
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition

if TYPE_CHECKING:
    import duckdb

FOLD_ROWS: Final = 1_000_000
_COLUMNS: Final = pa.schema([FIELDS[name] for name in ("key", "value", "headers", "partition", "offset")])
Ends = Mapping[int, int]
"""The offset behind the last record, by partition."""


def committed_ends(client: ClusterClient, topic: str) -> dict[int, int]:
    """Where readers of committed records come to an end now."""
    return _offsets(client, topic, LATEST)


def first_readable(client: ClusterClient, topic: str, since: Ends) -> dict[int, int]:
    """Where the first record lies that readers get, at these offsets or behind; the end where there is none."""
    ends = committed_ends(client, topic)
    found = dict(ends)
    for partition, start in since.items():
        wanted = OffsetRange(topic, partition, min(start, ends[partition]), ends[partition])
        batches = read_range(client, wanted, FetchSettings(), _COLUMNS)
        found[partition] = next((each["offset"][0].as_py() for each in batches if each.num_rows), ends[partition])
    return found


def newest_records(client: ClusterClient, topic: str, ends: Ends | None = None) -> pa.Table:
    """The columns key, value, headers, partition and offset; keys whose newest record is a tombstone are left out."""
    connection = _connect()
    state = _COLUMNS.empty_table()
    for stretch in _stretches(client, topic, committed_ends(client, topic) if ends is None else ends):
        state = _folded(connection, pa.concat_tables([state, stretch]))
    return state.filter(pc.is_valid(state["value"]))


def difference(old: pa.Table, new: pa.Table) -> pa.Table:
    """The records that make `old` what `new` is: its columns, in the order of `new`.

    A value that is null takes a key away: these come first, with the offset -1 and the partition in `old`.
    """
    return _query(
        _connect(),
        """
        select key, value, headers, partition, "offset" from (
            select new.* from new left join old on new.key = old.key
            where old.key is null or new.value <> old.value or new.headers is distinct from old.headers
            union all
            select old.key, null, null, old.partition, -1 from old anti join new on new.key = old.key
        ) order by partition, "offset", key
        """,
        old=old,
        new=new,
    ).cast(_COLUMNS)


def count_removed(old: pa.Table, new: pa.Table) -> int:
    """Return how many keys of `old` are not in `new`."""
    keys = {"old": old.select(["key"]), "new": new.select(["key"])}
    counted = _query(_connect(), "select count(*) as removed from old anti join new on new.key = old.key", **keys)
    return int(counted["removed"][0].as_py())


def _stretches(client: ClusterClient, topic: str, ends: Ends) -> Iterator[pa.Table]:
    starts = _offsets(client, topic, EARLIEST)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for partition, end in sorted(ends.items()):
        # What retention or compaction took away from the beginning has no newest record there.
        wanted = OffsetRange(topic, partition, min(starts[partition], end), end)
        for batch in read_range(client, wanted, FetchSettings(), _COLUMNS):
            batches.append(batch)
            rows += batch.num_rows
            if rows >= FOLD_ROWS:
                yield pa.Table.from_batches(batches, _COLUMNS)
                batches, rows = [], 0
    if batches:
        yield pa.Table.from_batches(batches, _COLUMNS)


def _folded(connection: duckdb.DuckDBPyConnection, records: pa.Table) -> pa.Table:
    return _query(
        connection,
        """
        select key, newest.value, newest.headers, partition, "offset" from (
            select key, partition, arg_max(struct_pack(value, headers), "offset") as newest, max("offset") as "offset"
            from records where key is not null group by key, partition
        )
        """,
        records=records,
    ).cast(_COLUMNS)


def _connect() -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect()


def _query(connection: duckdb.DuckDBPyConnection, sql: str, **tables: pa.Table) -> pa.Table:
    for name, table in tables.items():
        connection.register(name, table)
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            connection.unregister(name)


def _offsets(client: ClusterClient, topic: str, which: int) -> dict[int, int]:
    found = client.topic(topic)
    if found is None:
        raise TopicMissing(f"topic {topic} does not exist, or no longer")
    wanted = {TopicPartition(topic, each): which for each in found.leaders}
    return {place.partition: offset for place, offset in client.list_offsets(wanted).items()}
