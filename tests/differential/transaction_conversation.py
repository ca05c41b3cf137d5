"""Long conversations of producers with the coordinator of transactions, for a broker of any make.

What is asked next is drawn from a seed and depends on what the last answers were, so two brokers hear the same as long
as they say the same. Producers name the present epoch, the ones around it, or somebody else's id. A broker that asks
for patience is asked again until the transaction is settled; that is when the answer counts.

Left out is the one thing that we do not do as Kafka does: an InitProducerId with an epoch of the past aborts an open
transaction there.

python -m tests.differential.transaction_conversation      record what Apache Kafka says
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

from bench.brokers import start_kafka
from bench.kafka_jars import KAFKA_VERSION
from tests.differential.talk import PATIENCE_S, Talk, request, response_of
from tests.unit.coordinators.transaction_story import Story

from strandline.codec.message import Message
from strandline.codec.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.describe_transactions_request import DescribeTransactionsRequest
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

RECORDED = Path(__file__).parent / "recorded" / "conversations" / "transactions.json"
SEEDS = range(20)
QUESTIONS_PER_SEED = 40
TIMEOUT_MS = 60_000
PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
NOBODY = (-1, -1)
PATIENCE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Identity = tuple[int, int]
Transcript = list[list[str]]
"""What was asked, what was said, and what DescribeTransactions says of the transaction then."""


class Coordinator(Protocol):
    """Each answer is a word for an error code, or the epoch to go on with."""

    def init(self, name: str, producer: Identity) -> str: ...

    def add(self, name: str, producer: Identity, partitions: list[TopicPartition], *, verify_only: bool) -> str: ...

    def end(self, name: str, producer: Identity, *, commit: bool, version: int) -> str: ...

    def state(self, name: str) -> tuple[str, Identity, str]:
        """The state's name, who has the id, and the partitions."""


def converse(coordinator: Coordinator, seed: int) -> Transcript:
    choice, name = Random(seed), f"conversation-{seed}"
    transcript = [["init", coordinator.init(name, NOBODY), ""]]
    for _ in range(QUESTIONS_PER_SEED):
        state, (producer_id, epoch), _ = coordinator.state(name)
        what = choice.choice(("init", "go on", "add", "add", "add", "verify", "end", "end"))
        ahead = choice.choice((0, 0, 0, 0, -1, 1, -2))
        is_foreign = choice.random() < 0.1
        partitions = choice.sample(PARTITIONS, choice.choice((1, 2)))
        commit, version = choice.random() < 0.6, choice.choice((0, 2, 2))
        ahead = ahead if epoch + ahead >= 0 else 0
        producer = (producer_id + 1_000 * is_foreign, epoch + ahead)
        label = f"{what} {ahead:+d}{' as another' if is_foreign else ''}"
        match what:
            case "init":
                label, said = what, coordinator.init(name, NOBODY)
            case "go on":
                if state == "Ongoing" and ahead and not is_foreign:
                    continue
                said = coordinator.init(name, producer)
            case "end":
                label += f" {'commit' if commit else 'abort'} v{version}"
                said = coordinator.end(name, producer, commit=commit, version=version)
            case _:
                label += "".join(f" {partition}" for partition in partitions)
                said = coordinator.add(name, producer, partitions, verify_only=what == "verify")
        state, (_, epoch), held = coordinator.state(name)
        transcript.append([label, said, f"{state} {epoch}{held}"])
    return transcript


def word(code: int) -> str:
    return ErrorCode(code).name


def epoch_or_code(response: Any) -> str:
    return word(response.error_code) if response.error_code else str(response.producer_epoch)


class OnTheTable:
    """The state machine alone. Markers are written as soon as they are asked for."""

    def __init__(self) -> None:
        self.story = Story()

    def init(self, name: str, producer: Identity) -> str:
        return self._settled(lambda: epoch_or_code(self.story.init_token(name, producer=producer).response))

    def add(self, name: str, producer: Identity, partitions: list[TopicPartition], *, verify_only: bool) -> str:
        token = self.story.add_token(producer, *partitions, name=name, verify_only=verify_only)
        return " ".join(word(token.response[partition]) for partition in sorted(partitions))

    def end(self, name: str, producer: Identity, *, commit: bool, version: int) -> str:
        def ask() -> str:
            response = self.story.end_token(producer, commit=commit, name=name, version=version).response
            return epoch_or_code(response) if version == 2 or response.error_code else "NONE"

        return self._settled(ask)

    def state(self, name: str) -> tuple[str, Identity, str]:
        return told(self.story.describe(name))

    def _settled(self, ask: Callable[[], str]) -> str:
        while True:
            said = ask()
            self.story.write_markers()
            if said != word(ErrorCode.CONCURRENT_TRANSACTIONS):
                return said


class OverTheWire:
    """A broker behind its port, with the topic of the conversations."""

    def __init__(self, port: int) -> None:
        self._talk = Talk(port, {})
        topic = CreatableTopic(name="t", num_partitions=len(PARTITIONS), replication_factor=1)
        self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        self._settled(lambda: word(self._ask(FindCoordinatorRequest(key="x", key_type=1), 3).error_code))

    def close(self) -> None:
        self._talk.close()

    def _ask(self, message: Message, version: int) -> Any:
        answer = self._talk.exchange(request(message.API_KEY, version, message), "producer")
        assert isinstance(answer, bytes), f"{message} was answered with {answer}"
        return response_of(message.API_KEY, version, answer)

    def init(self, name: str, producer: Identity) -> str:
        asked = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        return self._settled(lambda: epoch_or_code(self._ask(asked, 5)))

    def add(self, name: str, producer: Identity, partitions: list[TopicPartition], *, verify_only: bool) -> str:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[index for _, index in partitions])]
        by_broker = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=True,
            topics=topics,
        )
        by_client = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )

        def ask() -> str:
            if verify_only:
                response = self._ask(AddPartitionsToTxnRequest(transactions=[by_broker]), 5)
                (topic,) = response.results_by_transaction[0].topic_results
            else:
                (topic,) = self._ask(by_client, 3).results_by_topic_v3_and_below
            codes = {each.partition_index: each.partition_error_code for each in topic.results_by_partition}
            return " ".join(word(codes[index]) for index in sorted(codes))

        return self._settled(ask)

    def end(self, name: str, producer: Identity, *, commit: bool, version: int) -> str:
        asked = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )

        def ask() -> str:
            response = self._ask(asked, 5 if version == 2 else 4)
            return epoch_or_code(response) if version == 2 or response.error_code else "NONE"

        return self._settled(ask)

    def state(self, name: str) -> tuple[str, Identity, str]:
        asked = DescribeTransactionsRequest(transactional_ids=[name])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            described = self._ask(asked, 0).transaction_states[0]
            if not described.transaction_state.startswith("Prepare") or time.monotonic() > deadline:
                return told(described)

    def _settled(self, ask: Callable[[], str]) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = ask()
            if said.split()[0] not in {code.name for code in PATIENCE} or time.monotonic() > deadline:
                return said


def told(described: Any) -> tuple[str, Identity, str]:
    held = sorted((topic.topic, index) for topic in described.topics for index in topic.partitions)
    state = word(described.error_code) if described.error_code else described.transaction_state
    return state, (described.producer_id, described.producer_epoch), "".join(f" {name}-{index}" for name, index in held)


def all_conversations(coordinator: Coordinator) -> dict[str, Transcript]:
    return {str(seed): converse(coordinator, seed) for seed in SEEDS}


def recorded() -> dict[str, Transcript]:
    """The conversations with Apache Kafka."""
    content = json.loads(RECORDED.read_text())
    assert content["kafka"] == KAFKA_VERSION, f"recorded with Kafka {content['kafka']}"
    conversations: dict[str, Transcript] = content["conversations"]
    return conversations


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        broker = start_kafka(Path(root) / "kafka")
        try:
            conversations = all_conversations(OverTheWire(broker.port))
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
