"""What happens to transactions, told once for all clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.transactions.client import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    WAIT_S_MAX,
    TransactionalClient,
    Values,
    refusal,
    until,
)

PARTITIONS = 2
SHORT_TIMEOUT_MS = 1_000
INPUTS_PER_PARTITION = 25


class Stage:
    """A client, the topic of the story and its transactional id, and an onlooker of another make."""

    def __init__(self, client: TransactionalClient, bootstrap: str, name: str) -> None:
        self.client = client
        self.topic = name
        self.id = f"{name}-id"
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.create(name)

    def create(self, topic: str) -> str:
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S_MAX)
        return topic

    @property
    def committed(self) -> Values:
        return self.client.read(self.topic, PARTITIONS, READ_COMMITTED)

    @property
    def written(self) -> Values:
        return self.client.read(self.topic, PARTITIONS, READ_UNCOMMITTED)

    def comes_to(self, expected: Values) -> None:
        """Readers of what is committed see this in the end, and only its beginnings before: markers follow a commit."""

        def is_all() -> bool:
            found = self.committed
            for have, wanted in zip(found, expected, strict=True):
                assert have == wanted[: len(have)], f"{found} is not on its way to {expected}"
            return found == expected

        until(f"{expected} committed", is_all)

    def write(self, topic: str, values: Mapping[int, list[str]]) -> None:
        """Records without a transaction."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for partition, each in values.items():
            for value in each:
                producer.produce(topic, value.encode(), partition=partition)
        assert producer.flush(WAIT_S_MAX) == 0

    def ends(self, partition: int) -> dict[str, int]:
        """Where the partition ends for readers of each isolation level."""
        found = {}
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            with self._consumer("onlooker", isolation) as consumer:
                place = TopicPartition(self.topic, partition)
                found[isolation] = consumer.get_watermark_offsets(place, timeout=WAIT_S_MAX)[1]
        return found

    def until_ended(self, partition: int = 0) -> None:
        """Until no transaction is open there."""
        until("the end of a transaction", lambda: len(set(self.ends(partition).values())) == 1)

    def positions(self, group: str, topic: str) -> list[int]:
        with self._consumer(group, READ_COMMITTED) as consumer:
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            return [each.offset for each in consumer.committed(places, timeout=WAIT_S_MAX)]

    @contextmanager
    def _consumer(self, group: str, isolation: str) -> Iterator[Consumer]:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": group, "isolation.level": isolation}
        consumer = Consumer({**settings, "log_level": 0})
        try:
            yield consumer
        finally:
            consumer.close()


def commit(stage: Stage) -> None:
    """What is written in a transaction is seen when it is committed, in all partitions, and not before."""
    producer = stage.client.producer(stage.id)
    producer.begin()
    producer.send(stage.topic, 0, ["a", "b"])
    producer.send(stage.topic, 1, ["c"])
    assert stage.committed == [[], []]
    assert stage.written == [["a", "b"], ["c"]]
    producer.commit()
    stage.comes_to([["a", "b"], ["c"]])


def one_after_the_other(stage: Stage) -> None:
    """The next transaction begins when commit returns; each is in the log once, in order."""
    producer = stage.client.producer(stage.id)
    for number in range(10):
        producer.begin()
        producer.send(stage.topic, 0, [f"{number}"])
        producer.send(stage.topic, 1, [f"{number}"])
        producer.commit()
    stage.comes_to([[f"{number}" for number in range(10)]] * 2)


def abort(stage: Stage) -> None:
    """What was aborted is seen only by readers who want everything, and the producer goes on."""
    producer = stage.client.producer(stage.id)
    producer.begin()
    producer.send(stage.topic, 0, ["a"])
    producer.send(stage.topic, 1, ["b"])
    producer.abort()
    stage.until_ended()
    assert stage.committed == [[], []]
    producer.begin()
    producer.send(stage.topic, 1, ["c"])
    producer.commit()
    stage.comes_to([[], ["c"]])
    assert stage.written == [["a"], ["b", "c"]]


def empty(stage: Stage) -> None:
    """A transaction in which nothing was done ends either way, and the next one is as any other."""
    producer = stage.client.producer(stage.id)
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    producer.begin()
    producer.send(stage.topic, 0, ["a"])
    producer.commit()
    stage.comes_to([["a"], []])


def fence(stage: Stage) -> None:
    """Who takes a transactional id over ends what was open, and the one before cannot commit it any more."""
    zombie = stage.client.producer(stage.id)
    zombie.begin()
    zombie.send(stage.topic, 0, ["of the zombie"])
    heir = stage.client.producer(stage.id)
    stage.until_ended()
    heir.begin()
    heir.send(stage.topic, 0, ["of the heir"])
    assert refusal(zombie.commit).is_final
    assert stage.committed == [[], []]
    heir.commit()
    stage.comes_to([["of the heir"], []])


def fenced_write(stage: Stage) -> None:
    """Nothing that a fenced producer sends comes into the log, though its heir has a transaction there."""
    zombie = stage.client.producer(stage.id)
    zombie.begin()
    zombie.send(stage.topic, 0, ["of the zombie"])
    heir = stage.client.producer(stage.id)
    heir.begin()
    heir.send(stage.topic, 0, ["of the heir"])
    refusal(lambda: zombie.send(stage.topic, 0, ["too late"]))
    heir.commit()
    stage.comes_to([["of the heir"], []])
    assert stage.written == [["of the zombie", "of the heir"], []]


def timeout(stage: Stage) -> None:
    """A transaction that is open for longer than its timeout is aborted, and commit says that it was."""
    slow = stage.client.producer(stage.id, timeout_ms=SHORT_TIMEOUT_MS)
    slow.begin()
    slow.send(stage.topic, 0, ["too slow"])
    stage.write(stage.topic, {0: ["behind it"]})
    stage.until_ended()
    assert stage.committed == [["behind it"], []]
    refusal(slow.commit)
    again = stage.client.producer(stage.id)
    again.begin()
    again.send(stage.topic, 0, ["in time"])
    again.commit()
    stage.comes_to([["behind it", "in time"], []])


def too_long_a_timeout(stage: Stage) -> None:
    """No producer gets more time for a transaction than the broker allows."""
    refused = refusal(lambda: stage.client.producer(stage.id, timeout_ms=900_001))
    words = refused.code.upper().replace("_", "")
    # Some tell the name of the error, others what it says.
    assert "INVALIDTRANSACTIONTIMEOUT" in words or "TRANSACTION.MAX.TIMEOUT.MS" in words, refused


def read_committed(stage: Stage) -> None:
    """A reader waits at the first open transaction, leaves out aborted ones among others, and misses nothing."""
    first, second = (stage.client.producer(f"{stage.id}-{name}") for name in ("first", "second"))
    first.begin()
    second.begin()
    first.send(stage.topic, 0, ["first 1"])
    second.send(stage.topic, 0, ["second 1"])
    stage.write(stage.topic, {0: ["plain 1"]})
    first.send(stage.topic, 0, ["first 2"])
    second.commit()
    second.begin()
    second.send(stage.topic, 0, ["second 2"])
    assert stage.committed == [[], []]
    first.abort()
    stage.comes_to([["second 1", "plain 1"], []])
    first.begin()
    first.send(stage.topic, 0, ["first 3"])
    second.abort()
    stage.write(stage.topic, {0: ["plain 2"]})
    first.commit()
    stage.comes_to([["second 1", "plain 1", "first 3", "plain 2"], []])
    everything = ["first 1", "second 1", "plain 1", "first 2", "second 2", "first 3", "plain 2"]
    assert stage.written == [everything, []]


def consume_transform_produce(stage: Stage) -> None:
    """Each input is transformed once, though transactions are aborted and one is left open by a worker that is gone."""
    source, group = stage.create(f"{stage.topic}-in"), f"{stage.topic}-group"
    inputs = [[f"{partition}:{number}" for number in range(INPUTS_PER_PARTITION)] for partition in range(PARTITIONS)]
    stage.write(source, dict(enumerate(inputs)))
    worker = stage.client.transformer(stage.id, group, source)
    count, turn = PARTITIONS * INPUTS_PER_PARTITION, 0
    while count:
        records = worker.poll()
        worker.begin()
        for record in records:
            worker.send(stage.topic, record.partition, [record.value])
        turn += 1
        if turn == 2:
            worker.abort()
        elif turn == 3:
            worker.give_positions()
            worker.leave()
            worker = stage.client.transformer(stage.id, group, source)
        else:
            worker.commit()
            count -= len(records)
    stage.comes_to(inputs)
    assert len(stage.written[0] + stage.written[1]) > PARTITIONS * INPUTS_PER_PARTITION
    assert stage.positions(group, source) == [INPUTS_PER_PARTITION] * PARTITIONS
    worker.leave()


def zombie_member(stage: Stage) -> None:
    """Who has lost its place in the group commits neither positions nor what it made of the records."""
    source, group = stage.create(f"{stage.topic}-in"), f"{stage.topic}-group"
    stage.write(source, {0: ["a"]})
    zombie = stage.client.transformer(f"{stage.id}-zombie", group, source)
    zombie.poll()
    zombie.begin()
    zombie.send(stage.topic, 0, ["of the zombie"])
    zombie.leave()
    heir = stage.client.transformer(f"{stage.id}-heir", group, source)
    heir.poll()
    refusal(zombie.commit)
    heir.begin()
    heir.send(stage.topic, 1, ["of the heir"])
    heir.commit()
    heir.leave()
    stage.comes_to([[], ["of the heir"]])
    assert stage.positions(group, source)[0] == 1


@dataclass(frozen=True)
class Row:
    """`cannot` names the clients that have no way to do it, each with the reason."""

    story: Callable[[Stage], None]
    cannot: Mapping[str, str] = field(default_factory=dict)


ROWS = {
    "commit": Row(commit),
    "one-after-the-other": Row(one_after_the_other),
    "abort": Row(abort),
    "empty": Row(empty),
    "fence": Row(fence),
    "fenced-write": Row(fenced_write),
    "timeout": Row(timeout),
    "too-long-a-timeout": Row(too_long_a_timeout),
    "read-committed": Row(read_committed),
    "consume-transform-produce": Row(consume_transform_produce),
    "zombie-member": Row(
        zombie_member,
        {
            "aiokafka": "tells the coordinator the group's name only",
            "franz-go": "member and producer are one, and leave together",
        },
    ),
}
