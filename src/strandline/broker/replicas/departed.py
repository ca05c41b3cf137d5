"""Totals of partitions that are gone from this broker."""

from __future__ import annotations

from strandline.partition.partition import Partition


class Departed:
    """What deleted partitions had counted. A metric that went down would look like a restart of the broker."""

    def __init__(self) -> None:
        self.batches_in = self.bytes_in = self.bytes_out = self.records_in = 0

    def add(self, partition: Partition) -> None:
        self.batches_in += partition.batches_in
        self.bytes_in += partition.bytes_in
        self.bytes_out += partition.bytes_out
        self.records_in += partition.records_in
