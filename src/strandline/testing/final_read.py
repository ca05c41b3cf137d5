"""The end of every run: a full read of all partitions, after the faults have healed and the producers have stopped."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from strandline.ids import TopicPartition
from strandline.testing.client_threads import POLL_RECORDS_MAX, QUICK_RETRIES, polls_of
from strandline.testing.history import Assign, Op, Poll
from strandline.testing.recorder import Recorder

NOT_LEADING_YET = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)
"""Errors that a client may get right after a restart of a correct broker."""


def read_to_the_end(
    recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], *, timeout_s: float = 60.0
) -> None:
    """One new consumer reads every partition from the start up to the end as it is now, and says so in the history."""
    process = recorder.new_process()
    deadline_ns = recorder.now_ns() + int(timeout_s * 1e9)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"final-{process}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **QUICK_RETRIES,
        }
    )
    try:
        started_ns = recorder.now_ns()
        ends = {str(partition): _end_of(consumer, partition, recorder, deadline_ns) for partition in partitions}
        consumer.assign([Position(topic, number, 0) for topic, number in partitions])
        assigned = tuple(Assign(name, 0) for name in ends)
        recorder.add(Op(process, "ok", "assign", assigned, started_ns, recorder.now_ns(), final=True))
        unread = dict(ends)
        while unread:
            if recorder.now_ns() > deadline_ns:
                raise TimeoutError(f"the final read did not reach the end of {unread} within {timeout_s:g} s")
            invoked_ns = recorder.now_ns()
            answers = consumer.consume(POLL_RECORDS_MAX, 0.1)
            polls = polls_of([answer for answer in answers if answer.error() is None])
            recorder.add(Op(process, "ok", "poll", tuple(polls), invoked_ns, recorder.now_ns(), final=True))
            _strike_off(unread, answers)
        # An empty partition is read too: the checker must know that nothing was there.
        nothing = tuple(Poll(name, ()) for name in ends)
        recorder.add(Op(process, "ok", "poll", nothing, recorder.now_ns(), recorder.now_ns(), final=True))
    finally:
        consumer.close()


def _end_of(consumer: Consumer, partition: TopicPartition, recorder: Recorder, deadline_ns: int) -> int:
    """Return the high watermark, asked again while the broker is still on its way to lead the partition."""
    while True:
        try:
            return consumer.get_watermark_offsets(Position(*partition), timeout=5.0)[1]
        except KafkaException as error:
            if error.args[0].code() not in NOT_LEADING_YET or recorder.now_ns() > deadline_ns:
                raise
        # Nothing is assigned yet, so this only lets the client look around and keeps us from asking without pause.
        consumer.poll(0.05)


def _strike_off(unread: dict[str, int], answers: Sequence[Message]) -> None:
    for answer in answers:
        error = answer.error()
        if error is None:
            continue
        name = f"{answer.topic()}-{answer.partition()}"
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        offset = answer.offset()
        if offset is not None and offset >= unread.get(name, offset + 1):
            del unread[name]
