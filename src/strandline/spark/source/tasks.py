"""A task: one range of offsets read in a worker, as Arrow batches in the shape that Spark asked for.

Spark keeps its Python workers from task to task, so a worker keeps its client too: a stream with small batches would
spend its time on connecting. One client for each cluster and set of timeouts; never across a fork.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.spark.source.source_spec import KEY_COLUMN, MADE_COLUMNS, RowShape, SourceOptions

if TYPE_CHECKING:
    from strandline.spark.source.json_columns import JsonColumns

CLIENTS_MAX: Final = 8
"""Clients that one worker keeps; of more the oldest goes, and is made again if it is needed."""

_clients: dict[tuple[int, ClientSettings], ClusterClient] = {}


class RangePartition(InputPartition):
    """What the driver hands to one task."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


@dataclass(frozen=True)
class TaskSettings:
    """What every task of a query needs to know; travels to the workers with the reader."""

    client: ClientSettings
    fetch: FetchSettings
    schema: pa.Schema
    shape: RowShape

    @property
    def value_columns(self) -> list[str]:
        """Those of the value; with `valueColumn` the one struct."""
        return [name for name in self.schema.names if not self.shape.is_of_record(name) and name not in MADE_COLUMNS]


def task_settings(options: SourceOptions, schema: pa.Schema) -> TaskSettings:
    fetch = FetchSettings(
        isolation_level=options.isolation_level,
        partition_bytes_max=options.partition_bytes_max,
        wait_ms_max=options.wait_ms_max,
        stall_timeout_s=options.stall_timeout_s,
        fails_on_data_loss=options.fails_on_data_loss,
    )
    return TaskSettings(options.client, fetch, schema, options.shape)


def read_task(settings: TaskSettings, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark makes an empty partition of its own where there is nothing to plan.
    if not isinstance(partition, RangePartition):
        return
    client = worker_client(settings.client)
    value_columns, has_key = settings.value_columns, KEY_COLUMN in settings.schema.names
    if not value_columns and not has_key:
        yield from read_range(client, partition.offsets, settings.fetch, settings.schema)
        return
    offsets = partition.offsets
    parser = _parser(settings, value_columns, offsets)
    wanted = {"value", "offset", *(["key"] if has_key else [])}
    wanted |= {name for name in settings.schema.names if settings.shape.is_of_record(name)}
    record_schema = pa.schema([field for name, field in FIELDS.items() if name in wanted])
    for batch in read_range(client, offsets, settings.fetch, record_schema):
        yield parser.columns(batch)


def _parser(settings: TaskSettings, value_columns: list[str], offsets: OffsetRange) -> JsonColumns:
    """Return what makes columns of values. Most readers have no need of it, so it is imported late."""
    shape = settings.shape
    more: dict[str, Any] = {
        "topic": offsets.topic,
        "partition": offsets.partition,
        "fails": shape.fails_on_corrupt,
        "in_struct": shape.value_column is not None,
    }
    if shape.reader_schema is not None:
        from strandline.spark.source.registry_columns import RegistryColumns

        return RegistryColumns(shape.reader_schema, settings.client, settings.schema, value_columns, **more)
    from strandline.spark.source.json_columns import JsonColumns

    return JsonColumns(settings.schema, value_columns, **more)


def worker_client(settings: ClientSettings) -> ClusterClient:
    key = (os.getpid(), settings)
    client = _clients.get(key)
    if client is None:
        if len(_clients) >= CLIENTS_MAX:
            _clients.pop(next(iter(_clients))).close()
        client = _clients[key] = ClusterClient(settings)
    return client
