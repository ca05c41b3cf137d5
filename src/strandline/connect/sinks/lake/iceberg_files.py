"""Data files of Iceberg: written by many processes, added to the table by one commit of another.

A file has the table's field ids, is of one partition, and comes with its statistics, as pyiceberg writes them. Its name
is new, so no attempt ever replaces a file of another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.utils.properties import property_as_bool

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.sinks.lake.data_files import check_not_null
from strandline.connect.sinks.lake.lake_table import DataFile

_DATA: Final = "data"


def written(table: Table, rows: pa.Table, directory: str) -> list[DataFile]:
    """Write rows to files below `<data>/<directory>`, at least one for each partition that they have."""
    check_not_null(".".join(table.name()), table.schema().as_arrow(), rows)
    # The library takes the place of files from the properties; these are of this call alone.
    properties = {**table.properties, TableProperties.WRITE_DATA_PATH: _place(table, directory)}
    metadata = table.metadata.model_copy(update={"properties": properties})
    files = _dataframe_to_data_files(metadata, rows, table.io, write_uuid=uuid.uuid4())
    spec = table.metadata.default_spec_id
    return [
        DataFile(each.file_path, each.record_count, each.file_size_in_bytes, str(metadata.table_uuid), (spec, each))
        for each in files
    ]


def check_written_for(table: Table, name: str, files: Sequence[DataFile]) -> None:
    """Raise if files have field ids or partitions that are not the table's."""
    if any(each.table_id != str(table.metadata.table_uuid) for each in files):
        raise ConnectFailed(f"the table {name} was deleted and made again while its files were written: start again")
    if any(each.detail[0] != table.metadata.default_spec_id for each in files):
        raise RetriableFailure(f"the partitions of {name} were changed while its files were written: nothing was added")


def stage(
    table: Table, files: Sequence[DataFile], properties: Mapping[str, str], notes: Mapping[str, str]
) -> Transaction:
    """Return a transaction that adds files and sets properties. It asserts the snapshot that was read last."""
    transaction = table.transaction()
    merges = property_as_bool(
        table.properties, TableProperties.MANIFEST_MERGE_ENABLED, TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT
    )
    update = transaction.update_snapshot(snapshot_properties=dict(notes))
    with update.merge_append() if merges else update.fast_append() as append:
        for each in files:
            append.append_data_file(each.detail[1])
    transaction.set_properties(dict(properties))
    return transaction


def remove(table: Table, paths: Collection[str]) -> None:
    """Remove files; another process may have done so before."""
    for each in paths:
        with suppress(FileNotFoundError):
            table.io.delete(each)


def listed(table: Table, directory: str) -> list[str]:
    """Return the files below a directory; none for a store that is reached in another way than by Arrow."""
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return []
    place = _place(table, directory)
    scheme, netloc, path = PyArrowFileIO.parse_location(place, io.properties)
    found = io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return [place + each.path.removeprefix(path) for each in found if each.type == FileType.File]


def named(table: Table, directory: str) -> set[str]:
    """Return the files below a directory that any snapshot has: a table can be rolled back, and read as it was."""
    place = f"{_place(table, directory)}/"
    manifests = {each.manifest_path: each for kept in table.metadata.snapshots for each in kept.manifests(table.io)}
    entries = (entry for each in manifests.values() for entry in each.fetch_manifest_entry(table.io))
    return {entry.data_file.file_path for entry in entries if entry.data_file.file_path.startswith(place)}


def _place(table: Table, directory: str) -> str:
    data = table.properties.get(TableProperties.WRITE_DATA_PATH) or f"{table.location().rstrip('/')}/{_DATA}"
    return f"{data.rstrip('/')}/{directory}"
