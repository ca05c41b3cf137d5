"""What a coordinator of consumer groups writes to `__consumer_offsets`: a story told to Apache Kafka, and its records.

python -m tests.differential.group_log        tells it to Kafka and writes recorded/logs/consumer_groups.json
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.brokers import start_kafka
from bench.kafka_jars import KAFKA_VERSION
from tests.differential.talk import Talk

RECORDED = Path(__file__).parent / "recorded" / "logs" / "consumer_groups.json"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "auto.create.topics.enable": "false",
}
CREATE_TOPICS, FIND_COORDINATOR, BEAT, COMMIT = 19, 10, 68, 8
TOPIC, PARTITIONS = "t", 4
GROUP, PATTERNS = "orders", "patterns"

Say = Callable[..., Any]
"""A heartbeat: member id, epoch, and by keyword what it owns, its names, its pattern, its instance id; the answer."""
Log = list[tuple[bytes, bytes | None]]


def story(say: Say) -> None:
    """Two members share the partitions, the static one goes and comes back under another id, the other leaves."""
    say("a", 0, owns=[], names=[TOPIC], rack="r1", assignor="uniform")
    say("b", 0, owns=[], names=[TOPIC], instance_id="i")
    say("a", 2)
    say("a", 2, owns=[0, 1])
    say("b", 3, instance_id="i")
    say("b", -2, instance_id="i")
    say("c", 0, owns=[], names=[TOPIC], instance_id="i")
    say("a", 3, names=[TOPIC, "later"])
    say("a", 4)
    say("c", 3, instance_id="i")
    say("a", -1)
    say("c", 4, instance_id="i")


def recorded() -> tuple[uuid.UUID, Log]:
    """The id of the topic, and the records in their order."""
    content = json.loads(RECORDED.read_text())
    assert content["kafka"] == KAFKA_VERSION, f"recorded with Kafka {content['kafka']}"
    log = [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in content["log"]]
    return uuid.UUID(content["topic_id"]), log


def tell_kafka(port: int) -> tuple[uuid.UUID, Log]:
    talk = Talk(port, {})
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
    made = talk.look(CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=False)
    topic_id: uuid.UUID = made.topics[0].topic_id
    talk.look(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])

    def say(
        member_id: str,
        epoch: int,
        *,
        group: str = GROUP,
        owns: Iterable[int] | None = None,
        names: list[str] | None = None,
        pattern: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
    ) -> Any:
        partitions = None if owns is None else [{"topic_id": topic_id, "partitions": list(owns)}] if owns else []
        answer = talk.look(
            BEAT,
            1,
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=rack,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            subscribed_topic_names=names,
            subscribed_topic_regex=pattern,
            server_assignor=assignor,
            topic_partitions=partitions,
        )
        assert answer.error_code == 0, (member_id, epoch, answer)
        return answer

    story(say)
    epoch = say("p", 0, group=PATTERNS, owns=[], pattern=f"{TOPIC}.*").member_epoch
    while say("p", epoch, group=PATTERNS).assignment is None:
        pass  # Kafka matches patterns beside the heartbeats.
    talk.close()
    return topic_id, read_log(port)


def read_log(port: int) -> Log:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "nobody", "enable.partition.eof": True})
    consumer.assign([TopicPartition("__consumer_offsets", 0, OFFSET_BEGINNING)])
    log: Log = []
    while (message := consumer.poll(30.0)) is not None and message.error() is None:
        log.append((message.key(), message.value()))
    consumer.close()
    return log


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        broker = start_kafka(Path(root) / "kafka", settings=SETTINGS)
        try:
            topic_id, log = tell_kafka(broker.port)
        finally:
            broker.discard()
    RECORDED.parent.mkdir(exist_ok=True)
    rows = [[key.hex(), None if value is None else value.hex()] for key, value in log]
    content = {"kafka": KAFKA_VERSION, "topic_id": str(topic_id), "log": rows}
    RECORDED.write_text(json.dumps(content, indent=0) + "\n")
    print(f"{len(log)} records")


if __name__ == "__main__":
    main()
