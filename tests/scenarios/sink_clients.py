"""The driver of a sink and its tasks: the driver says CommitBatch by itself, the tasks are stock producers."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Producer
from tests.hostile.peer import Closed, Peer
from tests.scenarios.transactional_clients import PATIENCE_S, TRANSACTION, TRY_AGAIN, stock_producer

from strandline.codec.messages.commit_batch_request import CommitBatchRequest, SinkTransaction
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.codec.messages.delete_sink_request import DeleteSinkRequest
from strandline.codec.messages.delete_sink_response import DeleteSinkResponse
from strandline.codec.messages.describe_transactions_request import DescribeTransactionsRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.list_sinks_request import ListSinksRequest
from strandline.codec.messages.list_sinks_response import ListedSink
from strandline.errors import ErrorCode
from strandline.ids import sink_key

ASK_AGAIN = TRY_AGAIN | {ErrorCode.REQUEST_TIMED_OUT}


class Task:
    """A stock producer of a sink, and its transaction."""

    def __init__(self, bootstrap: str, sink_id: str, **settings: Any) -> None:
        self.transactional_id = f"{sink_key(sink_id)}{uuid.uuid4().hex}"
        self.producer: Producer = stock_producer(bootstrap, self.transactional_id, **settings)

    def write(self, topic: str, *values: str, partition: int = 0) -> Task:
        """All of it in a transaction that is left open."""
        self.producer.begin_transaction()
        return self.write_more(topic, *values, partition=partition)

    def write_more(self, topic: str, *values: str, partition: int = 0) -> Task:
        for value in values:
            self.producer.produce(topic, value.encode(), partition=partition)
        assert self.producer.flush(PATIENCE_S) == 0
        return self

    def close(self) -> None:
        """What a worker does with a producer before it uses it again."""
        self.producer.commit_transaction(PATIENCE_S)


class Driver:
    def __init__(self, ports: Sequence[int], sink_id: str) -> None:
        self.sink_id = sink_id
        self._ports = ports

    def coordinator_port(self) -> int:
        def ask() -> tuple[int, int]:
            request = FindCoordinatorRequest(coordinator_keys=[sink_key(self.sink_id)], key_type=TRANSACTION)
            with talk(self._ports) as peer:
                (found,) = peer.ask(request, 4).coordinators
            return found.error_code, found.port

        return int(patiently(ask))

    def ask(self, request: Any) -> Any:
        """Of the coordinator, again while the answer says so."""

        def ask() -> tuple[int, Any]:
            with talk([self.coordinator_port()]) as peer:
                response = peer.ask(request, 0)
            code = getattr(response, "error_code", 0)
            return (code if code in ASK_AGAIN else 0), response

        return patiently(ask)

    def listed(self, tasks: Iterable[Task]) -> list[SinkTransaction]:
        """As the tasks' own commit messages have it."""
        request = DescribeTransactionsRequest(transactional_ids=[task.transactional_id for task in tasks])
        return [
            SinkTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
            for each in self.ask(request).transaction_states
        ]

    def request(self, batch_id: int, tasks: Iterable[Task]) -> CommitBatchRequest:
        return CommitBatchRequest(sink_id=self.sink_id, batch_id=batch_id, transactions=self.listed(tasks))

    def commit(self, batch_id: int, *tasks: Task) -> CommitBatchResponse:
        response: CommitBatchResponse = self.ask(self.request(batch_id, tasks))
        return response

    def delete(self) -> DeleteSinkResponse:
        response: DeleteSinkResponse = self.ask(DeleteSinkRequest(sink_id=self.sink_id))
        return response

    def look(self) -> ListedSink | None:
        found = self.ask(ListSinksRequest(sink_ids=[self.sink_id])).sinks
        return found[0] if found else None

    def states(self, *tasks: Task) -> list[str]:
        request = DescribeTransactionsRequest(transactional_ids=[task.transactional_id for task in tasks])
        return [each.transaction_state for each in self.ask(request).transaction_states]


@contextlib.contextmanager
def talk(ports: Sequence[int]) -> Iterator[Peer]:
    """With the first that answers."""
    peer = None
    for port in ports:
        with contextlib.suppress(OSError):
            peer = Peer(port)
            break
    if peer is None:
        raise ConnectionRefusedError(f"none of {ports} answers")
    try:
        yield peer
    finally:
        peer.close()


def patiently(ask: Callable[[], tuple[int, Any]]) -> Any:
    """Ask again while the answer is a code that says so, or there is none; what came with the last one."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            code, found = ask()
        except (OSError, Closed):
            code, found = ErrorCode.NETWORK_EXCEPTION, None
        if code == ErrorCode.NONE:
            return found
        assert code in ASK_AGAIN, ErrorCode(code).name
        assert time.monotonic() < until, ErrorCode(code).name
        time.sleep(0.02)
