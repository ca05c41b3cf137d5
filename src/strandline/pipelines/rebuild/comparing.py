"""Two versions of a pipeline side by side: how many rows each has, how many differ, and some of those that do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import EARLIEST, ClusterClient
from strandline.client.failures import TopicMissing
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.table_snapshot import committed_ends, newest_records
from strandline.pipelines.versions.state import DatasetState, PipelineState

SAMPLE_ROWS: Final = 5
VALUE_LENGTH_MAX: Final = 200
"""Of a value in a sample, in characters."""

_COUNTS: Final = """
select count(*) filter (new.key is null), count(*) filter (old.key is null),
       count(*) filter (new.value = old.value), count(*) filter (new.value <> old.value)
from old full join new on old.key = new.key
"""
# Any rows will do, but the same ones when it is asked again.
_SAMPLE: Final = """
select coalesce(old.key, new.key) as key, old.value, new.value from old full join new on old.key = new.key
where old.key is null or new.key is null or new.value <> old.value
order by md5(coalesce(old.key, new.key)::varchar) limit ?
"""


@dataclass(frozen=True)
class Comparison:
    """One dataset. Of a stream only the number of records is compared: its order says nothing."""

    dataset: str
    kind: str
    old_rows: int | None
    """None: the version has no such dataset."""
    new_rows: int | None
    same: int | None = None
    changed: int | None = None
    only_old: int | None = None
    only_new: int | None = None
    sample: tuple[tuple[str, str | None, str | None], ...] = ()
    """Key, old value, new value of some that differ."""

    @property
    def differs(self) -> bool:
        return bool(self.changed or self.only_old or self.only_new) or self.old_rows != self.new_rows

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "sample"}
        return {**told, "sample": [{"key": key, "old": old, "new": new} for key, old, new in self.sample]}


def compare(client: ClusterClient, state: PipelineState) -> list[Comparison]:
    """Every dataset of either version, as far as each has come."""
    assert state.rebuild is not None
    switch = phases.switch_of(state.rebuild)
    old, new = state.versions[switch.leaving].datasets, state.versions[switch.coming].datasets
    return [_compared(client, name, old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))]


def _compared(client: ClusterClient, name: str, old: DatasetState | None, new: DatasetState | None) -> Comparison:
    shown = new or old
    assert shown is not None
    if old is None or new is None or not (old.kind.has_keys and new.kind.has_keys):
        rows = [None if each is None else _rows(client, each) for each in (old, new)]
        return Comparison(name, shown.kind.value, rows[0], rows[1])
    return compare_tables(name, shown.kind.value, newest_records(client, old.topic), newest_records(client, new.topic))


def compare_tables(name: str, kind: str, old: pa.Table, new: pa.Table) -> Comparison:
    connection = duckdb.connect()
    connection.register("old", old)
    connection.register("new", new)
    only_old, only_new, same, changed = connection.execute(_COUNTS).fetchall()[0]
    rows = connection.execute(_SAMPLE, [SAMPLE_ROWS]).fetchall()
    sample = tuple((_text(key) or "", _text(was), _text(is_now)) for key, was, is_now in rows)
    return Comparison(name, kind, old.num_rows, new.num_rows, same, changed, only_old, only_new, sample)


def _rows(client: ClusterClient, dataset: DatasetState) -> int:
    """Keys of a table, records of a stream."""
    try:
        if dataset.kind.has_keys:
            return int(newest_records(client, dataset.topic).num_rows)
        ends = committed_ends(client, dataset.topic)
        starts = client.list_offsets({TopicPartition(dataset.topic, each): EARLIEST for each in ends})
    except TopicMissing:
        return 0
    schema = pa.schema([FIELDS["offset"]])
    counted = 0
    for partition, end in ends.items():
        start = starts[TopicPartition(dataset.topic, partition)]
        wanted = OffsetRange(dataset.topic, partition, min(start, end), end)
        counted += sum(batch.num_rows for batch in read_range(client, wanted, FetchSettings(), schema))
    return counted


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = bytes(value).decode(errors="replace")
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}..."


def words_of(each: Comparison) -> list[str]:
    """For a person: a line on the dataset, and one for each row of the sample."""
    if each.old_rows is None or each.new_rows is None:
        which = "only the new version has it" if each.old_rows is None else "the new version does not have it"
        return [f"{each.dataset}: {which} ({each.new_rows if each.old_rows is None else each.old_rows:,} rows)"]
    if each.same is None:
        return [f"{each.dataset}: {each.old_rows:,} records, now {each.new_rows:,}"]
    if not each.differs:
        return [f"{each.dataset}: {each.new_rows:,} rows, all the same"]
    lines = [
        f"{each.dataset}: {each.old_rows:,} rows, now {each.new_rows:,}: {each.same:,} the same, {each.changed:,} "
        f"changed, {each.only_new:,} new, {each.only_old:,} gone"
    ]
    for key, was, is_now in each.sample:
        lines.append(f"  {json.dumps(key)}: {_shown(was)} -> {_shown(is_now)}")
    return lines


def _shown(value: str | None) -> str:
    return "(none)" if value is None else value
