"""Long conversations of producers that commit offsets in transactions, with a broker of any make.

Two producers share a group: one without members, a classic one, or one of the consumer protocol. What is asked next is
drawn from a seed. After each answer it is looked at what is committed, for those who ask for stable offsets only and
for the others. Groups and offsets are deleted only where there is something: who holds nothing is forgotten here at
once, by Kafka some time later.

python -m tests.differential.offsets_conversation      record what Apache Kafka says
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from bench.brokers import start_kafka
from bench.kafka_jars import KAFKA_VERSION
from tests.differential.transaction_conversation import OverTheWire, Transcript, word

from strandline.codec.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.codec.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

RECORDED = Path(__file__).parent / "recorded" / "conversations" / "transactional_offsets.json"
SEEDS = range(18)
QUESTIONS_PER_SEED = 40
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
KINDS = ("simple", "classic", "consumer")
NOBODY = ("", -1)
MEMBER_FROM_VERSION = 3
ADDED_BY_COMMIT_FROM_VERSION = 5
METADATA_BYTES_MAX = 4_096

Member = tuple[str, int]
"""Its id, and its generation or epoch."""


class Committing(OverTheWire):
    """A broker behind its port, with two producers and a group."""

    def __init__(self, port: int, name: str, kind: str) -> None:
        super().__init__(port)
        self.group = name
        self._settled(lambda: word(self._ask(FindCoordinatorRequest(key=name), 3).error_code))
        self.producers = [f"{name}-{number}" for number in range(2)]
        for producer in self.producers:
            self.init(producer, (-1, -1))
        self._settled(self.seen)
        self.member: Member = {"simple": self.alone, "classic": self.join, "consumer": self.beat}[kind]()

    def alone(self) -> Member:
        return NOBODY

    def join(self) -> Member:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        request.member_id = self.patiently(request, 9).member_id
        joined = self._ask(request, 9)
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        assert self._ask(sync, 5).error_code == 0
        return joined.member_id, joined.generation_id

    def beat(self) -> Member:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id="AAAAAAAAAAAAAAAAAAAAAQ",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = self.patiently(request, 1)
        assert answer.error_code == 0, word(answer.error_code)
        return answer.member_id, answer.member_epoch

    def patiently(self, request: Any, version: int) -> Any:
        """The first answer that asks for no patience."""
        answers: list[Any] = []

        def ask() -> str:
            answers.append(self._ask(request, version))
            return word(answers[-1].error_code)

        self._settled(ask)
        return answers[-1]

    def commit(
        self, producer: str, ahead: int, member: Member, version: int, partition: int, offset: int, metadata: str
    ) -> str:
        _, (producer_id, epoch), _ = self.state(producer)
        if version < MEMBER_FROM_VERSION:
            member = NOBODY
        committed = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=producer,
            group_id=self.group,
            producer_id=producer_id,
            producer_epoch=max(epoch + ahead, 0),
            member_id=member[0],
            generation_id=member[1],
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[committed])],
        )
        return self._settled(lambda: word(self._ask(request, version).topics[0].partitions[0].error_code))

    def add_offsets(self, producer: str) -> str:
        _, (producer_id, epoch), _ = self.state(producer)
        request = AddOffsetsToTxnRequest(
            transactional_id=producer, producer_id=producer_id, producer_epoch=epoch, group_id=self.group
        )
        return self._settled(lambda: word(self._ask(request, 3).error_code))

    def finish(self, producer: str, *, commit: bool, version: int) -> str:
        _, identity, _ = self.state(producer)
        said = self.end(producer, identity, commit=commit, version=version)
        self.state(producer)
        return said if not said.isdigit() else "NONE"

    def commit_plainly(self, member: Member, partition: int, offset: int) -> str:
        committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=member[0],
            generation_id_or_member_epoch=member[1],
            topics=[OffsetCommitRequestTopic(name="t", partitions=[committed])],
        )
        return word(self._ask(request, 9).topics[0].partitions[0].error_code)

    def delete_offset(self, partition: int) -> str:
        doomed = OffsetDeleteRequestTopic(
            name="t", partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
        )
        response = self._ask(OffsetDeleteRequest(group_id=self.group, topics=[doomed]), 0)
        return word(response.error_code or response.topics[0].partitions[0].error_code)

    def delete_group(self) -> str:
        return word(self._ask(DeleteGroupsRequest(groups_names=[self.group]), 2).results[0].error_code)

    def seen(self) -> str:
        """What is committed for each partition: for who asks for stable offsets, and for others; and what is listed."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        stable, any_state, listed = (
            self._ask(
                OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id=self.group, topics=asked)], require_stable=require_stable
                ),
                9,
            ).groups[0]
            for asked, require_stable in ((topics, True), (topics, False), (None, True))
        )
        return " | ".join(map(offsets_of, (stable, any_state, listed)))

    def holds_something(self) -> bool:
        stable = self.seen().partition(" | ")[0]
        return stable != "0:-1 1:-1"


def offsets_of(group: Any) -> str:
    if group.error_code:
        return word(group.error_code)
    found = {
        partition.partition_index: word(partition.error_code) if partition.error_code else partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }
    return " ".join(f"{index}:{found[index]}" for index in sorted(found))


def converse(port: int, seed: int) -> Transcript:
    kind = KINDS[seed % len(KINDS)]
    is_second_version = seed // len(KINDS) % 2 == 0
    broker = Committing(port, f"offsets-{seed}", kind)
    try:
        return [["begin", kind, broker.seen()], *_talk(broker, Random(seed), is_second_version=is_second_version)]
    finally:
        broker.close()


def _talk(broker: Committing, choice: Random, *, is_second_version: bool) -> Transcript:
    transcript: Transcript = []
    actions = ["commit"] * 8 + ["end"] * 4 + ["plain"] * 2 + ["delete offset", "delete group"]
    if not is_second_version:
        actions += ["add"] * 5
    for _ in range(QUESTIONS_PER_SEED):
        what, number = choice.choice(actions), choice.randrange(2)
        producer, partition, offset = broker.producers[number], choice.choice((0, 0, 1)), choice.randrange(1_000)
        ahead = choice.choice((0, 0, 0, 0, -1, 1))
        versions = (5,) if is_second_version else (0, 2, 3, 4)
        version, is_commit = choice.choice(versions), choice.random() < 0.6
        member_id, epoch = broker.member
        said_to_be = choice.choice(("itself", "itself", "itself", "nobody", "older", "newer", "a stranger"))
        members = {
            "itself": broker.member,
            "nobody": NOBODY,
            "older": (member_id, epoch - 1),
            "newer": (member_id, epoch + 1),
            "a stranger": ("a stranger", max(epoch, 0)),
        }
        metadata = "x" * (METADATA_BYTES_MAX + (choice.random() < 0.05))
        label = f"{what} {number}"
        match what:
            case "commit":
                label += f" {ahead:+d} t-{partition} = {offset} for {said_to_be} v{version}"
                said = broker.commit(producer, ahead, members[said_to_be], version, partition, offset, metadata)
            case "add":
                said = broker.add_offsets(producer)
            case "end":
                label += " commit" if is_commit else " abort"
                said = broker.finish(producer, commit=is_commit, version=2 if is_second_version else 0)
            case "plain":
                label = f"plain t-{partition} = {offset} for {said_to_be}"
                said = broker.commit_plainly(members[said_to_be], partition, offset)
            case _:
                if not broker.holds_something():
                    continue
                label = f"{what} t-{partition}" if what == "delete offset" else what
                said = broker.delete_offset(partition) if what == "delete offset" else broker.delete_group()
        transcript.append([label, said, broker.seen()])
    return transcript


def all_conversations(port: int) -> dict[str, Transcript]:
    return {str(seed): converse(port, seed) for seed in SEEDS}


def recorded() -> dict[str, Transcript]:
    """The conversations with Apache Kafka."""
    content = json.loads(RECORDED.read_text())
    assert content["kafka"] == KAFKA_VERSION, f"recorded with Kafka {content['kafka']}"
    conversations: dict[str, Transcript] = content["conversations"]
    return conversations


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        broker = start_kafka(Path(root) / "kafka", settings=SETTINGS)
        try:
            conversations = all_conversations(broker.port)
        finally:
            broker.discard()
    talks = ",\n".join(
        f'  "{seed}": [\n' + ",\n".join("    " + json.dumps(line) for line in transcript) + "\n  ]"
        for seed, transcript in conversations.items()
    )
    RECORDED.write_text(f'{{"kafka": "{KAFKA_VERSION}", "conversations": {{\n{talks}\n}}}}\n')
    print(f"{sum(map(len, conversations.values()))} answers recorded")


if __name__ == "__main__":
    main()
