"""The producers of one worker process, which Spark uses for many tasks of many batches.

    free ──take──▶ in use ──leave──▶ undecided ──(a later batch)──▶ free again, or given up
      ▲               │
      └───abort───────┘   the attempt failed before its message left, so no driver can commit what it wrote

An undecided producer has a transaction open that only the driver may end. Until a later batch comes it is neither used
nor ended: several tasks of a batch run in one process one after the other, and a transaction that the next of them
touched would be missing when the driver commits. A later batch means that the driver has decided, so the producer asks
to commit what was committed for it: success means that it was, and that it is free. A broker refuses this while the
transaction is undecided, so to ask cannot decide anything.

So there are never more ids than the most tasks that this worker ran in one batch. What a killed worker leaves behind
is aborted with the next batch that the sink commits.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from strandline.client.failures import ClientFailed
from strandline.ids import sink_key
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.failures import TransactionLost
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.producer import TransactionalProducer

SINKS_MAX: Final = 32
"""Queries whose producers one worker keeps; those of the one that was idle for longest are forgotten first."""
CLUSTERS_MAX: Final = 8


@dataclass
class _SinkProducers:
    batch_id: int
    free: list[TransactionalProducer] = field(default_factory=list)
    undecided: list[TransactionalProducer] = field(default_factory=list)


class Pool:
    def __init__(self) -> None:
        self._clusters: OrderedDict[SinkOptions, SinkCluster] = OrderedDict()
        self._sinks: OrderedDict[tuple[SinkOptions, str], _SinkProducers] = OrderedDict()

    def cluster(self, options: SinkOptions) -> SinkCluster:
        cluster = self._clusters.get(options)
        if cluster is None:
            cluster = self._clusters[options] = SinkCluster(options)
        self._clusters.move_to_end(options)
        while len(self._clusters) > CLUSTERS_MAX:
            forgotten, old = self._clusters.popitem(last=False)
            old.close()
            for key in [key for key in self._sinks if key[0] == forgotten]:
                del self._sinks[key]
        return cluster

    def close(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()
        self._sinks.clear()

    def knows(self, options: SinkOptions) -> bool:
        return options in self._clusters

    def take(self, options: SinkOptions, sink_id: str, batch_id: int) -> TransactionalProducer:
        """A producer without a transaction, for one task of this batch."""
        cluster = self.cluster(options)
        producers = self._producers(options, sink_id, batch_id)
        if producers.batch_id != batch_id:
            producers.batch_id = batch_id
            self._settle(producers)
        if producers.free:
            return producers.free.pop()
        key = sink_key(sink_id)
        producer = TransactionalProducer(cluster, f"{key}{uuid.uuid4()}", key)
        producer.initialize()
        return producer

    def leave(self, options: SinkOptions, sink_id: str, producer: TransactionalProducer) -> None:
        """The task is done; what it wrote waits for the driver's decision."""
        producers = self._sinks.get((options, sink_id))
        if producers is not None:
            (producers.undecided if producer.is_open else producers.free).append(producer)

    def abort(self, options: SinkOptions, sink_id: str, producer: TransactionalProducer) -> None:
        """Abort the transaction of a task that failed. No driver knows of it, and readers need not wait for it."""
        try:
            if producer.is_open:
                producer.end(committed=False)
                if not producer.cluster.raises_epochs:
                    # What was on its way when the task failed may or may not have taken its sequences.
                    producer.initialize()
        except ClientFailed:
            # Whatever it is, the transaction is aborted with the batch or when its time is over; the failure of the
            # task itself is what its user has to hear.
            return
        self.leave(options, sink_id, producer)

    def forget(self, options: SinkOptions, sink_id: str) -> None:
        """A sink that wrote its only batch: its producers have no later batch to be free for."""
        self._sinks.pop((options, sink_id), None)

    def _producers(self, options: SinkOptions, sink_id: str, batch_id: int) -> _SinkProducers:
        producers = self._sinks.get((options, sink_id))
        if producers is None:
            producers = self._sinks[(options, sink_id)] = _SinkProducers(batch_id)
        self._sinks.move_to_end((options, sink_id))
        while len(self._sinks) > SINKS_MAX:
            self._sinks.popitem(last=False)
        return producers

    def _settle(self, producers: _SinkProducers) -> None:
        """Make free what the driver committed, and give up what it did not."""
        undecided, producers.undecided = producers.undecided, []
        for producer in undecided:
            try:
                producer.end(committed=True)
            except TransactionLost:
                if producer.is_undecided():
                    # Not ours to end. It stays open for its driver, and this producer is given up.
                    continue
                # It was aborted, so to take the same id again ends nothing, and needs no further id.
                producer.initialize()
            producers.free.append(producer)


_pools: dict[int, Pool] = {}


def worker_pool() -> Pool:
    """The pool of this process. A fork must not go on with the sockets of its parent."""
    pid = os.getpid()
    if pid not in _pools:
        _pools.clear()
        _pools[pid] = Pool()
    return _pools[pid]
