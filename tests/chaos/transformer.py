"""A worker of its own process: consumes as a member of a group, produces in transactions, commits positions in them.

Its only argument is JSON; it works until its standard input ends, or until it is fenced. What it says, a line each:

    {"did": "ready"}                                       its transactional id is its own
    {"did": "asks", "at": 5, "sends": [["out-0", "3:17", 42]], "taken": [["in-1", 100, 120]]}
    {"did": "ended", "at": 9, "outcome": "ok", "error": ""}

"asks" stands before every end of a transaction, so that all it wrote is known wherever the process dies. An outcome is
`fail` only if the transaction was aborted for certain. Some transactions are aborted on purpose, and some stay open for
longer than they may.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from strandline.testing.client_threads import QUICK_RETRIES

BATCH_MAX = 1_000
POLL_S = 0.1
CALL_S = 5.0
"""How long one call may take; it is repeated while that may help."""
END_S_MAX = 90.0
"""How long the end of a transaction is asked for, before its outcome is given up as unknown."""
HANG_S_MAX = 4 * CALL_S
"""librdkafka looks at no clock while it waits for a group's coordinator to come back, and one that was taken out of the
metadata does not (its issues 5456 and 5511): such a worker is as good as killed."""
ABORT_SHARE = 0.1
HANG_SHARE = 0.01
ABORTED_FOR_CERTAIN = 2
"""Which transaction of a worker is aborted whatever the dice say, so that a short run has had some."""

Place = tuple[str, int]


class GivenUp(Exception):
    """The producer cannot go on: another one has its id, or nobody answers."""


class Worker:
    def __init__(self, wanted: dict[str, Any], stopping: threading.Event) -> None:
        self._wanted = wanted
        self._stopping = stopping
        self._rng = random.Random(wanted["seed"])
        self._sent = 0
        self._ended = 0
        self._sends: list[list[Any]] = []
        self._records: list[Message] = []
        """What was polled and is not in a transaction yet."""
        self._producer = Producer(
            {
                "bootstrap.servers": wanted["bootstrap"],
                "transactional.id": wanted["transactional_id"],
                "transaction.timeout.ms": wanted["timeout_ms"],
                "message.timeout.ms": wanted["timeout_ms"],
                "linger.ms": 1,
                **QUICK_RETRIES,
            }
        )
        self._consumer = self._joined()

    def live(self) -> None:
        try:
            self._insist(self._producer.init_transactions)
            say("ready")
            while not self._stopping.is_set():
                self._transact()
        except GivenUp as reason:
            say("gives up", error=str(reason))
        except KafkaException as failure:
            # A zombie may be told in any call, also in the one that begins a transaction.
            if not failure.args[0].fatal() and failure.args[0].code() != KafkaError._FENCED:
                raise
            say("gives up", error=_words(failure.args[0]))
        finally:
            self._consumer.close()

    def _joined(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._wanted["bootstrap"],
                "group.id": self._wanted["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **self._wanted["protocol"],
                **QUICK_RETRIES,
            }
        )
        consumer.subscribe(
            [self._wanted["source"]], on_assign=self._on_moved, on_revoke=self._on_moved, on_lost=self._on_moved
        )
        return consumer

    def _on_moved(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        # It is, or was in between, somebody else's: whoever has it now begins at what is committed.
        moved = {(each.topic, each.partition) for each in partitions}
        self._records = [record for record in self._records if _place(record) not in moved]

    def _poll(self) -> list[Message]:
        """One at a time: what comes after the call that tells of a move was read after it."""
        self._records = []
        until = time.monotonic() + POLL_S
        while len(self._records) < BATCH_MAX and (left_s := until - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is not None and message.error() is None:
                self._records.append(message)
        return self._records

    def _transact(self) -> None:
        records = self._poll()
        if not records:
            return
        # Who it was when it read. Asked for later, it might be a member of a generation that has others read them.
        identity = self._consumer.consumer_group_metadata()
        if not self._consumer.memberid():
            # The coordinator has removed it, and the callback that says so comes with the next poll. As in Kafka, a
            # transaction of no member is not fenced by the group, so it must not commit what others read by now.
            return
        taken = _ranges(records)
        self._sends = []
        self._producer.begin_transaction()
        try:
            for record in records:
                self._send(record)
            positions = [TopicPartition(*place, end) for place, (_, end) in taken.items()]
            self._insist(self._producer.send_offsets_to_transaction, positions, identity)
            self._producer.flush(CALL_S)
        except KafkaException as failure:
            self._abort(taken, failure.args[0])
            return
        except SystemError as failure:
            # How the client says that a callback was run after it had failed for good: the failure is the cause.
            if not isinstance(failure.__cause__, KafkaException):
                raise
            self._abort(taken, failure.__cause__.args[0])
            return
        fate = self._rng.random()
        self._ended += 1
        if fate < ABORT_SHARE or self._ended == ABORTED_FOR_CERTAIN:
            self._abort(taken, None)
            return
        if fate < ABORT_SHARE + HANG_SHARE:
            self._stopping.wait(1.5 * self._wanted["timeout_ms"] / 1000)
        self._commit(taken)

    def _send(self, record: Message) -> None:
        self._sent += 1
        value = f"{self._wanted['process']}:{self._sent}"
        number = self._rng.randrange(self._wanted["partitions"])
        send = [f"{self._wanted['target']}-{number}", value, None]
        self._sends.append(send)
        self._producer.produce(
            self._wanted["target"], f"{value} ".encode(), partition=number, on_delivery=partial(_on_delivery, send)
        )

    def _commit(self, taken: dict[Place, tuple[int, int]]) -> None:
        self._say_asks(taken)
        try:
            self._insist(self._producer.commit_transaction)
        except KafkaException as failure:
            self._abort_uncommitted(taken, failure.args[0])
            return
        say("ended", outcome="ok", error="")

    def _abort(self, taken: dict[Place, tuple[int, int]], error: KafkaError | None) -> None:
        self._say_asks(taken)
        # Whatever becomes of the call: nobody has asked for this transaction to be committed, or ever will.
        say("ended", outcome="fail", error=_words(error))
        self._roll_back(taken, error)

    def _abort_uncommitted(self, taken: dict[Place, tuple[int, int]], error: KafkaError) -> None:
        """A commit went wrong. Only a coordinator that aborts the transaction proves that it was not committed."""
        try:
            self._roll_back(taken, error)
        except GivenUp:
            say("ended", outcome="info", error=_words(error))
            raise
        say("ended", outcome="fail", error=_words(error))

    def _roll_back(self, taken: dict[Place, tuple[int, int]], error: KafkaError | None) -> None:
        if error is not None and error.fatal():
            raise GivenUp(_words(error))
        try:
            self._insist(self._producer.abort_transaction)
        except KafkaException as failure:
            raise GivenUp(_words(failure.args[0])) from failure
        self._rewind(taken)

    def _rewind(self, taken: dict[Place, tuple[int, int]]) -> None:
        own = {(each.topic, each.partition) for each in self._consumer.assignment()}
        try:
            for place, (start, _) in taken.items():
                if place in own:
                    self._consumer.seek(TopicPartition(*place, start))
        except KafkaException:
            # It is being moved just now. Another member begins at what is committed, wherever this one stood.
            self._consumer.close()
            self._consumer = self._joined()

    def _insist(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call again while the client says that it may help; raises what the client raises otherwise."""
        until = time.monotonic() + END_S_MAX
        while True:
            try:
                with _not_for_ever(call):
                    call(*arguments, CALL_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.fatal() or not error.retriable():
                    if call == self._producer.init_transactions:
                        raise GivenUp(_words(error)) from failure
                    raise
                if time.monotonic() > until:
                    raise GivenUp(f"no end of {_words(error)}") from failure
            else:
                return

    def _say_asks(self, taken: dict[Place, tuple[int, int]]) -> None:
        ranges = [[f"{topic}-{number}", start, end] for (topic, number), (start, end) in taken.items()]
        say("asks", sends=self._sends, taken=ranges)


@contextlib.contextmanager
def _not_for_ever(call: Callable[..., object]) -> Iterator[None]:
    """A client that hangs in the call ends its process, with a word."""

    def end() -> None:
        say("gives up", error=f"the client hangs in {call.__name__}")
        os._exit(0)

    watchdog = threading.Timer(HANG_S_MAX, end)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _on_delivery(send: list[Any], error: KafkaError | None, message: Message) -> None:
    offset = message.offset()
    if error is None and offset is not None and offset >= 0:
        send[2] = offset


def _place(message: Message) -> Place:
    topic, number = message.topic(), message.partition()
    assert topic is not None
    assert number is not None
    return topic, number


def _ranges(records: Sequence[Message]) -> dict[Place, tuple[int, int]]:
    found: dict[Place, tuple[int, int]] = {}
    for record in records:
        offset = record.offset()
        assert offset is not None
        start, _ = found.get(_place(record), (offset, 0))
        found[_place(record)] = start, offset + 1
    return found


def _words(error: KafkaError | None) -> str:
    return "" if error is None else f"{error.name()}: {error.str()}"


def say(did: str, **fields: object) -> None:
    line = json.dumps({"at": time.monotonic_ns(), "did": did, **fields}).encode() + b"\n"
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


def main() -> None:
    stopping = threading.Event()

    def listen() -> None:
        # Past the buffer of `sys.stdin`, whose lock a thread must not hold when the interpreter ends.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    Worker(json.loads(sys.argv[1]), stopping).live()


if __name__ == "__main__":
    main()
