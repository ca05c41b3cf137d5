"""Records for several topics that become visible together: one batch of a sink, as a Spark query writes it.

The records are written in one transaction, which stays open. The decision on the batch is one request to the sink's
coordinator, and is made once: a second request is told that it was made, and what its sender wrote is aborted. So a
process that got no answer writes all of it again and asks again.

Batches are numbered. To give one up is to decide it with nothing in it. If the other process comes at all, it is told
"already committed", and its records are aborted. A note that is kept with the decision tells the two apart.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from strandline.client.coordinators import ask_coordinator
from strandline.client.failures import ClientFailed, ClusterFailed
from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.errors import ErrorCode, named
from strandline.ids import sink_key
from strandline.runtime.fault_points import fault_point
from strandline.spark.sink import driver
from strandline.spark.sink.cluster import SinkCluster
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import SinkOptions
from strandline.spark.sink.producer import TransactionalProducer
from strandline.spark.sink.row_writer import RowWriter
from strandline.spark.sink.visibility import ENDING, OPEN, await_readable, transactions_in

SETTLE_TIMEOUT_S: Final = 120.0
_GIVEN_UP: Final = b"given up"
"""The note of a batch that is never written."""


class MultiTopicCommit:
    """One sink of a cluster; `close` it."""

    def __init__(self, bootstrap: str, sink_id: str) -> None:
        self.sink_id = sink_id
        self._options = SinkOptions(bootstrap, client_id="strandline-rebuild")
        self._cluster = SinkCluster(self._options)
        if not self._cluster.commits_batches:
            self._cluster.close()
            raise SinkRefused(
                "nothing can be rebuilt on this cluster, which cannot commit the differences of all tables at once, as "
                "Apache Kafka cannot: use a Strandline cluster, or run the changed file as a pipeline with another "
                "name and other topics, and let readers move to these"
            )

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> MultiTopicCommit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, batch_id: int, tables: Iterable[tuple[str, pa.Table]], *, point: str) -> bool:
        """Write these rows (columns key, value, headers) to these topics as batch `batch_id`, all or nothing.

        False if the batch was decided before. What was written is visible when `settle` returns. `point` is where a
        test may end it, between writing and deciding.
        """
        if self.is_decided(batch_id):
            return False
        key = sink_key(self.sink_id)
        producer = TransactionalProducer(self._cluster, f"{key}{uuid.uuid4()}", key)
        producer.initialize()
        try:
            for topic, table in tables:
                writer = RowWriter(producer, replace(self._options, topic=topic))
                for batch in table.to_batches():
                    writer.add(batch)
                writer.finish()
        except BaseException:
            self._abort(producer)
            raise
        fault_point(point)
        open_ones = []
        if producer.is_open:
            open_ones = [SinkTransaction(producer.transactional_id, producer.producer_id, producer.producer_epoch)]
        return not self._decide(batch_id, open_ones)

    def give_up(self, batch_id: int) -> bool:
        """See to it that the batch is never written; False if it was."""
        if self.last_batch() > batch_id:
            return False
        # That it was decided before may be our own doing: the answer was lost, or who gave it up was killed.
        self._decide(batch_id, [], note=_GIVEN_UP)
        return self.is_given_up(batch_id)

    def is_given_up(self, batch_id: int) -> bool:
        """Whether it was decided that the batch is never written."""
        sinks = driver.ask_about(self._cluster, self.sink_id, include_notes=True).sinks
        return (self.sink_id, batch_id, _GIVEN_UP) in [
            (each.sink_id, each.last_batch_id, bytes(each.note)) for each in sinks
        ]

    def last_batch(self) -> int:
        """-1: none was decided."""
        return _last_batch(self._cluster, self.sink_id)

    def is_decided(self, batch_id: int) -> bool:
        return self.last_batch() >= batch_id

    def settle(self) -> None:
        """Return when every reader of committed records gets what was decided."""
        _await_markers(self._cluster, self.sink_id, OPEN)

    def _abort(self, producer: TransactionalProducer) -> None:
        """Abort what will not be decided, so that readers need not wait. If that fails, the timeout ends it."""
        if producer.is_open:
            with contextlib.suppress(ClientFailed):
                producer.end(committed=False)

    def _decide(self, batch_id: int, transactions: list[SinkTransaction], *, note: bytes = b"") -> bool:
        """Whether it was decided before."""
        request = CommitBatchRequest(
            sink_id=self.sink_id,
            batch_id=batch_id,
            transactions=transactions,
            timeout_ms=self._options.request_timeout_ms // 2,
            note=note,
        )
        answer = ask_coordinator(
            self._cluster.client,
            "commit the differences",
            sink_key(self.sink_id),
            request,
            CommitBatchResponse,
            lambda told: told.error_code,
        )
        code = named(answer.error_code)
        if code != ErrorCode.NONE:
            words = f": {answer.error_message}" if answer.error_message else ""
            raise ClusterFailed(
                f"the differences were not committed ({code.name}{words}), nothing has changed: run the rebuild again"
            )
        return bool(answer.already_committed)


def silence(bootstrap: str, sink_ids: Iterable[str]) -> None:
    """Abort what these sinks have open, and return when all that they decided can be read."""
    cluster = SinkCluster(SinkOptions(bootstrap, client_id="strandline-rebuild"))
    try:
        for sink_id in sink_ids:
            key = sink_key(sink_id)
            for transactional_id in transactions_in(cluster, key, OPEN):
                # To take an id ends what was open under it, and returns when that is done.
                TransactionalProducer(cluster, transactional_id, key).initialize()
            _await_markers(cluster, sink_id)
    finally:
        cluster.close()


def delete_sinks(bootstrap: str, sink_ids: Iterable[str]) -> None:
    """Delete the sinks of queries that are gone, so that no batch of theirs can be taken up again."""
    cluster = SinkCluster(SinkOptions(bootstrap, client_id="strandline-rebuild"))
    try:
        for sink_id in sink_ids:
            if _last_batch(cluster, sink_id) >= 0:
                driver.delete(cluster, sink_id)
    finally:
        cluster.close()


def _last_batch(cluster: SinkCluster, sink_id: str) -> int:
    sinks = driver.ask_about(cluster, sink_id).sinks
    return max((each.last_batch_id for each in sinks if each.sink_id == sink_id), default=-1)


def _await_markers(cluster: SinkCluster, sink_id: str, *more_states: str) -> None:
    key = sink_key(sink_id)
    if not await_readable(cluster, key, patience_s=SETTLE_TIMEOUT_S, states=(*ENDING, *more_states)):
        raise ClusterFailed(
            f"the cluster has not made visible what was committed within {SETTLE_TIMEOUT_S:g} s: look at "
            "`strandline cluster health`, then run it again"
        )
