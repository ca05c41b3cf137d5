"""`connections` transactional ids, each on a connection of its own: one record, then the end, one request in flight.

Bare sockets and prebuilt requests, as in transactions v2: Produce adds the partition by itself, and the answer to
EndTxn brings the epoch of the next transaction. Only epochs and a CRC change from one to the next.
"""

from __future__ import annotations

import select
import struct
import time
from typing import Any

import crc32c

from bench.asking import Question, answer_in, request_bytes
from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile
from bench.wire import one_record_batch
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE_VERSION, END_VERSION, INIT_VERSION, FIND_VERSION = 12, 5, 4, 3
TRANSACTION = 1
PATIENCE_S = 60.0
CONCURRENT_TRANSACTIONS = 51
COORDINATOR_ERRORS = (14, 15, 16, CONCURRENT_TRANSACTIONS)
_ATTRIBUTES_AT, _CRC_AT, _EPOCH_AT = 21, 17, 51
_TRANSACTIONAL = 0x10


class Transactions:
    """One transactional id; `turn` hears the answer to the last request and says the next."""

    def __init__(self, host: str, port: int, transactional_id: str, topic: str, partition: int) -> None:
        self.peer = Question(host, port, timeout_s=PATIENCE_S)
        self._id, self._topic, self._partition = transactional_id, topic, partition
        self._patiently(FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION), FIND_VERSION)
        init = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        given = self._patiently(init, INIT_VERSION)
        self._build(given.producer_id, given.producer_epoch)
        self._is_ending = False
        self._partial = b""
        self.began = 0.0
        self.took_s: list[float] = []

    def _patiently(self, request: Any, version: int) -> Any:
        deadline = time.perf_counter() + PATIENCE_S
        while (answer := self.peer.ask(request, version)).error_code in COORDINATOR_ERRORS:
            if time.perf_counter() > deadline:
                break
            time.sleep(0.02)
        if answer.error_code:
            raise SystemExit(f"{type(request).__name__} was refused: error code {answer.error_code}")
        return answer

    def _build(self, producer_id: int, epoch: int) -> None:
        batch = one_record_batch(b"x" * 100, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
        struct.pack_into(">h", batch, _ATTRIBUTES_AT, attributes | _TRANSACTIONAL)
        where = PartitionProduceData(index=self._partition, records=bytes(batch))
        topics = [TopicProduceData(name=self._topic, partition_data=[where])]
        produce = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=topics)
        end = EndTxnRequest(transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True)
        self.producer_id = producer_id
        self._produce = bytearray(request_bytes(produce, PRODUCE_VERSION))
        self._batch_at = self._produce.index(bytes(batch))
        self._batch_end = self._batch_at + len(batch)
        self._end = bytearray(request_bytes(end, END_VERSION))
        self._end_epoch_at = self._end.index(struct.pack(">qh", producer_id, epoch)) + 8
        self._set_epoch(epoch)

    def _set_epoch(self, epoch: int) -> None:
        struct.pack_into(">h", self._produce, self._batch_at + _EPOCH_AT, epoch)
        checked = memoryview(self._produce)[self._batch_at + _ATTRIBUTES_AT : self._batch_end]
        struct.pack_into(">I", self._produce, self._batch_at + _CRC_AT, crc32c.crc32c(checked))
        struct.pack_into(">h", self._end, self._end_epoch_at, epoch)

    def begin(self) -> None:
        self.began = time.perf_counter()
        self._is_ending = False
        self.peer.socket.sendall(self._produce)

    def turn(self) -> bool:
        """Hear what has come; whether a transaction has ended with it."""
        piece = self.peer.socket.recv(65_536)
        if not piece:
            raise SystemExit("the server closed the connection")
        self._partial += piece
        if len(self._partial) < 4 or len(self._partial) < 4 + int.from_bytes(self._partial[:4], "big"):
            return False
        content, self._partial = self._partial[4:], b""
        if not self._is_ending:
            code = answer_in(ProduceRequest, PRODUCE_VERSION, content).responses[0].partition_responses[0].error_code
            # The markers of the transaction before are still being written: as clients do, ask again.
            self._is_ending = code != CONCURRENT_TRANSACTIONS
            if self._is_ending:
                _check("Produce", code)
            self.peer.socket.sendall(self._end if self._is_ending else self._produce)
            return False
        answer = answer_in(EndTxnRequest, END_VERSION, content)
        _check("EndTxn", answer.error_code)
        self.took_s.append(time.perf_counter() - self.began)
        if answer.producer_id != self.producer_id:
            self._build(answer.producer_id, answer.producer_epoch)
        else:
            self._set_epoch(answer.producer_epoch)
        return True


def _check(what: str, error: int) -> None:
    if error:
        raise SystemExit(f"{what} was refused: error code {error}")


def main() -> None:
    options = task()
    host, _, port = options["bootstrap"].partition(":")
    lanes = [
        Transactions(host, int(port), f"{options['prefix']}-{number}", options["topic"], number % options["partitions"])
        for number in range(options["connections"])
    ]
    # One outside the measured span: the first of a connection touches what later ones find warm.
    _drive(lanes, len(lanes))
    for lane in lanes:
        lane.took_s.clear()
    wait_for_sign()

    start = time.perf_counter()
    _drive(lanes, options["count"])
    seconds = time.perf_counter() - start
    took_s = [each for lane in lanes for each in lane.took_s]
    finish(
        seconds=seconds,
        transactions=len(took_s),
        p50_ms=percentile(took_s, 50) * 1e3,
        p99_ms=percentile(took_s, 99) * 1e3,
    )


def _drive(lanes: list[Transactions], count: int) -> None:
    poll = select.epoll()
    by_descriptor = {lane.peer.socket.fileno(): lane for lane in lanes}
    for descriptor, lane in by_descriptor.items():
        poll.register(descriptor, select.EPOLLIN)
        lane.begin()
    to_begin, ended = count - len(lanes), 0
    while ended < count:
        for descriptor, _ in poll.poll():
            lane = by_descriptor[descriptor]
            if lane.turn():
                ended += 1
                if to_begin > 0:
                    to_begin -= 1
                    lane.begin()
    poll.close()


if __name__ == "__main__":
    main()
