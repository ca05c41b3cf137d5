"""SearchSink: a full-text index in a directory, kept by tantivy in the worker's process; each record exactly once.

`flush` commits documents and the offsets behind them in one commit of the index. After a crash the index has what the
last commit had, and the task goes on from the offsets in it. An index has one writer: tantivy locks the directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import tantivy

from strandline.connect import config as settings
from strandline.connect.config import option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.schema import ConnectType
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.document_id import document_id
from strandline.connect.sinks.plain_json import json_bytes, value_bytes
from strandline.connect.sinks.search_index import (
    ATTRIBUTES,
    POSITION,
    RECORD,
    SearchHit,
    all_sources,
    created,
    is_text_field,
    locked,
    old_indexes,
    opened,
    replace_index,
    search,
    source_digest,
    stored_position,
    stored_sources,
    text_fields,
)
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey

__all__ = ["SearchHit", "SearchSink", "search"]

ID_BYTES_MAX: Final = 32_000
"""Longer terms are left out of an index silently, so their documents could not be replaced."""
VALUE: Final = "value"
"""The field of a value that is no struct."""


class _Change(NamedTuple):
    """Replace the documents that have a term; None deletes them."""

    field: str
    term: str
    document: tantivy.Document | None


def _fields_problem(names: list[str]) -> str | None:
    wrong = [each for each in names if not is_text_field(each)]
    return f"{', '.join(map(repr, wrong))} cannot be a field of an index" if wrong else None


class SearchSink(Sink):
    """Writes records to a full-text index in a directory."""

    keeps_offsets = True

    class Config(settings.Config):
        name: str = option("Name of the connector; its offsets are stored under it.", default="search-sink")
        index_path: str = option("Directory of the index; it is made if it is not there.", importance="HIGH")
        text_fields: list[str] = option(
            "Fields that are searched as text. Without any: those that are text in the first record.",
            default=[],
            check=_fields_problem,
        )
        stored: bool = option("Whether the index keeps values, so that a search returns them.", default=True)
        document_id: str = option(
            "What a document is named by: the record's key, or topic, partition and offset.",
            default="key",
            choices=("key", "record"),
        )
        writer_memory_bytes: int = option(
            "Memory for documents that are not on disk yet.", default=50_000_000, low=15_000_000
        )

    def __init__(self, config: SearchSink.Config) -> None:
        super().__init__(config)
        self._path = Path(config.index_path)
        self._fields: frozenset[str] = frozenset()
        self._replaces: Path | None = None
        """The index that this one is to take the place of."""
        self._index: tantivy.Index | None = None
        self._writer: tantivy.IndexWriter | None = None
        self._committed: dict[TopicPosition, int] = {}
        self._pending: dict[TopicPosition, int] = {}
        self._changes: list[_Change] = []
        """What was written and is not committed, and the offsets behind it: a few seconds of records."""

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return one task, because an index has one writer."""
        return [{}]

    def open(self) -> None:
        """Open the index to read it. A task takes the lock of the writer in `resume`."""
        self._path = self.paths.check(self._path)
        if (self._path / "meta.json").exists():
            self._use(opened(self._path))

    def close(self) -> None:
        """Let go of the index. What was not committed is not in it, and is written again by the next task."""
        self._writer = None
        self._index = None

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        if self._index is None and not self.config.text_fields:
            return {}
        self._writer_of_index()
        # Partitions that were lost may come back: what was written of them is still to be committed.
        self.flush()
        self._committed.clear()
        assert self._index is not None
        self._index.reload()
        searcher, schema = self._index.searcher(), self._index.schema
        found = {each: stored_position(searcher, schema, self._position_name(each)) for each in partitions}
        return {each: offset for each, offset in found.items() if offset is not None}

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set where to go on, None for what the group's offset says, which also holds if there is no index yet.

        The index has one writer: while a task runs, this is refused.
        """
        if self._index is None:
            return
        self._apply([self._position(*each) for each in offsets.items()])
        self._commit()
        self._committed.clear()

    def write(self, batch: SinkBatch) -> None:
        if self._index is None and not self.config.text_fields:
            first = next((each for each in batch if not each.is_tombstone), None)
            if first is None:
                return
            self._use(created(self._path, text_fields_of(first)))
        self._writer_of_index()
        # Every record is looked at before the first is written, so a bad one leaves the batch to be written again.
        changes = [
            self._change(record)
            for record in batch
            if record.offset >= self._stored(TopicPosition(record.original_topic, record.original_partition))
        ]
        self._apply(changes)
        self._changes += changes
        self._pending |= batch.ends

    def flush(self) -> None:
        if not self._pending:
            return
        self._apply([self._position(*each) for each in self._pending.items()])
        self._commit()
        self._committed.update(self._pending)
        self._pending.clear()
        self._changes.clear()

    def expected(self, record: SinkRecord) -> ExpectedRow:
        if not self.config.stored:
            raise InvalidConnectorConfig("an index with stored=false has no values that a topic can be compared with")
        key = self._target_key(self._id_of(record))
        if record.is_tombstone:
            return ExpectedRow(key, None)
        return ExpectedRow(key, source_digest([json_bytes(record.value, record)]))

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        if self._index is None:
            return {}
        self._index.reload()
        searcher = self._index.searcher()
        found = {each: stored_sources(searcher, self._index.schema, each.key[0]) for each in keys}
        return {each: source_digest(sources) for each, sources in found.items() if sources}

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        if self._index is None:
            return
        self._index.reload()
        for name, source in all_sources(self._index.searcher(), self._index.schema):
            yield self._target_key(name), source_digest([source])

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        self._path = self.paths.check(self._path)
        beside = self._path.with_name(f"{self._path.name}.{suffix}")
        fresh = type(self)(self.Config(self.config.properties | {"index.path": str(beside)}))
        fresh.paths = self.paths
        fresh._replaces = self._path
        return fresh

    def swap(self) -> None:
        self.flush()
        self.close()
        replace_index(self._replaced_path(), self._path)

    def discard(self) -> None:
        self._replaced_path()
        self.close()
        if (self._path / "meta.json").exists():
            shutil.rmtree(self._path)

    def drop_old(self) -> None:
        self._path = self.paths.check(self._path)
        for each in old_indexes(self._path):
            shutil.rmtree(each)

    def _replaced_path(self) -> Path:
        if self._replaces is None:
            raise ConnectFailed(f"the index in {self._path} is no fresh one")
        return self._replaces

    def _stored(self, partition: TopicPosition) -> int:
        """Return the offset behind what the index has of a partition; 0 if it has nothing."""
        if partition not in self._committed:
            assert self._index is not None
            self._index.reload()
            name = self._position_name(partition)
            self._committed[partition] = stored_position(self._index.searcher(), self._index.schema, name) or 0
        return self._committed[partition]

    def _commit(self) -> None:
        try:
            self._writer_of_index().commit()
        except (ValueError, RuntimeError, OSError) as error:
            raise self._broken(error) from None

    def _apply(self, changes: Sequence[_Change]) -> None:
        writer = self._writer_of_index()
        try:
            for each in changes:
                writer.delete_documents_by_term(each.field, each.term)
                if each.document is not None:
                    writer.add_document(each.document)
        except (ValueError, RuntimeError, OSError) as error:
            raise self._broken(error) from None

    def _writer_of_index(self) -> tantivy.IndexWriter:
        """Return the writer. A new one gets what is not committed, because the one before may have failed."""
        if self._writer is None:
            if self._index is None:
                self._use(created(self._path, tuple(self.config.text_fields)))
            try:
                # Opened again, because a rebuild may have replaced its files since.
                index = opened(self._path)
                self._use(index)
                self._writer = locked(index, self._path, self.config.writer_memory_bytes)
            except InvalidConnectorConfig:
                raise
            except ConnectFailed as error:
                raise RetriableFailure(str(error)) from None
            self._apply(self._changes)
        return self._writer

    def _broken(self, error: Exception) -> RetriableFailure:
        # A writer that failed, as on a full disk, takes nothing more.
        self._writer = None
        return RetriableFailure(f"the index in {self._path} cannot be written: {error}")

    def _use(self, index: tantivy.Index) -> None:
        fields = text_fields(self._path)
        wanted = set(self.config.text_fields)
        if wanted and wanted != set(fields):
            raise InvalidConnectorConfig(
                f"the index in {self._path} has the text fields {', '.join(fields) or 'none'}, and text.fields says "
                f"{', '.join(sorted(wanted))}: use another index.path"
            )
        self._index, self._fields = index, frozenset(fields)

    def _position(self, partition: TopicPosition, offset: int | None) -> _Change:
        name = self._position_name(partition)
        if offset is None:
            return _Change("_position", name, None)
        document = tantivy.Document()
        document.add_text("_kind", POSITION)
        document.add_text("_position", name)
        document.add_integer("_next", offset)
        return _Change("_position", name, document)

    def _change(self, record: SinkRecord) -> _Change:
        name = self._id_of(record)
        if record.is_tombstone:
            return _Change("_id", name, None)
        document = tantivy.Document()
        document.add_text("_kind", RECORD)
        document.add_text("_id", name)
        source = json_bytes(record.value, record)
        if self.config.stored:
            document.add_bytes("_source", source)
        value = record.value if isinstance(record.value, Mapping) else {VALUE: record.value}
        others = {}
        for field, each in value.items():
            if field not in self._fields:
                others[field] = each
                continue
            for part in each if isinstance(each, list) else [each]:
                if part is not None:
                    document.add_text(field, value_bytes(part, record).decode("utf-8", "replace"))
        try:
            document.add_json(ATTRIBUTES, json_bytes(others, record).decode())
        except ValueError as error:
            raise RecordFailed(f"the record of {record.place} cannot be indexed: {error}", record) from None
        return _Change("_id", name, document)

    def _id_of(self, record: SinkRecord) -> str:
        return document_id(record, by_key=self.config.document_id == "key", size_bytes_max=ID_BYTES_MAX)

    def _target_key(self, name: str) -> TargetKey:
        return TargetKey(str(self._path), (name,))

    def _position_name(self, partition: TopicPosition) -> str:
        return f"{self.config.name}/{partition.topic}-{partition.partition}"


def text_fields_of(record: SinkRecord) -> tuple[str, ...]:
    """Return the fields of a record that hold text, by its schema or by its value."""
    schema = record.value_schema
    if schema is not None and schema.kind is ConnectType.STRUCT:
        names = [
            each.name for each in schema.fields if each.schema.kind is ConnectType.STRING and each.schema.name is None
        ]
    elif isinstance(record.value, Mapping):
        names = [name for name, each in record.value.items() if isinstance(each, str)]
    else:
        names = [VALUE] if isinstance(record.value, str) else []
    return tuple(name for name in names if is_text_field(name))
