"""The rows of one task into the transaction of one producer."""

from __future__ import annotations

import time
from random import Random
from typing import Final

import pyarrow as pa

from strandline.client.failures import TopicMissing
from strandline.client.partitioner import Partitioner
from strandline.runtime.fault_points import fault_point
from strandline.spark.sink.columns import rows_of
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.open_batches import OpenBatches, row_sizes
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.producer import TransactionalProducer

OPEN_BYTES_MAX: Final = 32 * 1024 * 1024
"""In the open batches of one task; with many partitions they are sent before they are full."""


class RowWriter:
    def __init__(self, producer: TransactionalProducer, options: SinkOptions) -> None:
        self.rows = 0
        self._producer = producer
        self._options = options
        self._batches = OpenBatches(batch_bytes=options.batch_bytes, record_bytes_max=options.record_bytes_max)
        self._partitioners: dict[str, Partitioner] = {}
        self._random = Random()

    @property
    def topics(self) -> list[str]:
        """Those that rows were written to."""
        return list(self._partitioners)

    def add(self, batch: pa.RecordBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        ready = self._batches.take_old(now_ms)
        for rows in rows_of(batch, self._options.topic):
            sizes = row_sizes(rows.keys, rows.values, rows.headers)
            partitioner = self._partitioner(rows.topic)
            try:
                chosen = partitioner.partitions_of(rows.keys, rows.partitions, sizes)
            except TopicMissing as error:
                raise SinkRefused(str(error)) from None
            ready += self._batches.add(rows.topic, chosen, sizes, rows.keys, rows.values, rows.headers, now_ms)
            if self._batches.size_bytes > OPEN_BYTES_MAX:
                ready += self._batches.take_all()
            self._producer.write(ready)
            ready = []
        self.rows += batch.num_rows

    def finish(self) -> None:
        """Return when every record is acknowledged."""
        self._producer.write(self._batches.take_all())
        fault_point("after-produce")
        fault_point("before-flush")
        self._producer.flush()
        fault_point("after-flush")

    def _partitioner(self, topic: str) -> Partitioner:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            count = self._producer.cluster.partition_count(topic)
            partitioner = Partitioner(topic, count, self._options.batch_bytes, self._random)
            self._partitioners[topic] = partitioner
        return partitioner
