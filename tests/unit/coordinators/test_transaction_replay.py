"""Whatever happens to transactions, their records alone bring them back: random histories, reloaded at every step.

Three producers fight for two transactional ids whose epochs are almost used up. Markers come in parts, coordinators
come and go, answers get lost: a producer then believes what it believed before.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import pytest
from tests.unit.coordinators.transaction_story import TIMEOUT_MS, Story, Token

from strandline.codec.internal_records import encode_coordinator_key
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.transaction_log_key import TransactionLogKey
from strandline.coordinators.groups.events import Loaded
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.transactions.transaction import EPOCH_LAST, Transaction, TransactionStatus
from strandline.coordinators.transactions.transaction_config import TransactionConfig
from strandline.coordinators.transactions.transaction_records import (
    decode_transaction,
    key_of,
    tombstone,
    transaction_record,
)
from strandline.coordinators.transactions.transaction_shard import TransactionShard
from strandline.errors import ErrorCode, MalformedMessage
from strandline.ids import TopicPartition

NAMES = ("x", "y")
PARTITIONS = tuple(TopicPartition(topic, index) for topic in ("t", "u") for index in range(3))
Identity = tuple[int, int]


@dataclass
class Producer:
    name: str
    identity: Identity = (-1, -1)


class Fight:
    """The story, with what producers believe and what was promised to them."""

    def __init__(self, seed: int, *, version: int) -> None:
        self.choice = random.Random(seed)
        self.version = version
        self.story = Story(
            transaction_version=2, id_expiration_ms=10 * TIMEOUT_MS, id_expiration_check_interval_ms=9_000
        )
        for number, name in enumerate(NAMES):
            nearly = Transaction(
                transactional_id=name,
                producer_id=number,
                producer_epoch=EPOCH_LAST - 9,
                timeout_ms=TIMEOUT_MS,
                last_update_ms=self.story.now_ms,
            )
            self.story.log.append(transaction_record(nearly, transaction_version=2))
        self.story.restart()
        self.producers = [Producer(self.choice.choice(NAMES)) for _ in range(3)]
        self.added: dict[tuple[str, Identity], set[TopicPartition]] = defaultdict(set)
        self.ended: dict[tuple[str, Identity], bool] = {}
        self.spread: dict[tuple[str, Identity], bool] = {}
        self.rotations = 0
        self.loaded, self.loaded_count = TransactionShard(self.story.config, coordinator_epoch=0), 0

    def act(self) -> None:
        story, choice = self.story, self.choice
        producer = choice.choice(self.producers)
        story.gives_ids = choice.random() < 0.7
        match choice.randrange(14):
            case 0:
                self.init(producer, (-1, -1))
            case 1:
                self.init(producer, producer.identity)
            case 2 | 3 | 4 | 5:
                self.add(producer)
            case 6 | 7 | 8:
                self.end(producer, commit=choice.random() < 0.7)
            case 9 | 10 if story.markers:
                story.write_markers(choice.choice((None, 1)))
            case 11:
                story.pass_ms(choice.choice((10, 1_000, 15_000)))
            case 12 if story.allocations:
                story.give_id(choice.choice((ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
            case 13 if choice.random() < 0.3:
                story.restart()
        self.check()

    def hears(self) -> bool:
        return self.choice.random() < 0.8

    def init(self, producer: Producer, identity: Identity) -> None:
        response = self.story.init_token(producer.name, producer=identity).response
        if response is not None and not response.error_code and self.hears():
            self.rotations += identity[0] not in (-1, response.producer_id)
            producer.identity = (response.producer_id, response.producer_epoch)

    def add(self, producer: Producer) -> None:
        partition = self.choice.choice(PARTITIONS)
        codes = self.story.add_token(producer.identity, partition, name=producer.name).response
        if codes == {partition: ErrorCode.NONE}:
            self.added[producer.name, producer.identity].add(partition)

    def end(self, producer: Producer, *, commit: bool) -> None:
        identity = producer.identity
        response = self.story.end_token(identity, commit=commit, name=producer.name, version=self.version).response
        if response is None or response.error_code:
            return
        if self.version == 2:
            assert self.ended.setdefault((producer.name, identity), commit) == commit, "ended in two ways"
        if self.hears():
            self.rotations += response.producer_id != identity[0]
            producer.identity = (response.producer_id, response.producer_epoch)

    def check(self) -> None:
        self.loaded.load(self.story.log[self.loaded_count :])
        self.loaded_count = len(self.story.log)
        assert self.loaded.transactions == self.story.shard.transactions
        if self.version < 2:
            return
        for markers in self.story.markers:
            epoch_ended = (markers.transactional_id, (markers.producer_id, markers.producer_epoch - 1))
            assert self.spread.setdefault(epoch_ended, markers.is_commit) == markers.is_commit
            assert self.ended.get(epoch_ended, markers.is_commit) == markers.is_commit, "not what was promised"
            assert self.added[epoch_ended] <= set(markers.partitions), "a partition without a marker"

    def settle(self) -> None:
        """Stop all clients, and check that nothing stays open."""
        self.story.gives_ids = True
        while self.story.allocations:
            self.story.give_id()
        for _ in range(3):
            self.story.write_markers()
            self.story.pass_ms(TIMEOUT_MS)
        self.check()
        open_still = [each for each in self.story.shard.transactions.values() if each.partitions]
        assert not open_still
        assert not self.story.markers


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("seed", range(12))
def test_a_reload_at_any_point_knows_all_and_goes_on_to_the_same_end(seed: int, version: int) -> None:
    fight = Fight(seed, version=version)
    for _ in range(300):
        fight.act()
    promised = {
        name: (transaction.is_commit, transaction.identity_after)
        for name, transaction in fight.story.shard.transactions.items()
        if transaction.is_prepared
    }
    fight.story.restart()
    fight.story.write_markers()
    for name, promise in promised.items():
        transaction = fight.story.transaction(name)
        assert transaction.status in (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
        assert (transaction.is_commit, transaction.identity_after) == promise
    fight.settle()


def test_the_fights_reach_new_producer_ids() -> None:
    rotations = 0
    for seed in range(6):
        fight = Fight(seed, version=2)
        for _ in range(300):
            fight.act()
        rotations += fight.rotations
    assert rotations > 3


# ---- records


def full() -> Transaction:
    """One in which no field has its default."""
    return Transaction(
        transactional_id="x",
        producer_id=5,
        producer_epoch=6,
        timeout_ms=7,
        last_update_ms=8,
        status=TransactionStatus.PREPARE_COMMIT,
        previous_producer_id=9,
        next_producer_id=10,
        last_producer_epoch=11,
        partitions={TopicPartition("t", 1): None},
        start_ms=12,
        transaction_version=2,
    )


def test_every_field_survives_a_reload() -> None:
    transaction = full()
    plain = Transaction(transactional_id="", producer_id=0, producer_epoch=0, timeout_ms=0, last_update_ms=0)
    for name, value, plain_value in zip(Transaction._fields, transaction, plain, strict=True):
        assert value != plain_value, f"{name} shows nothing"
    assert decode_transaction(*transaction_record(transaction, transaction_version=2)) == ("x", transaction)


@pytest.mark.parametrize("status", [each for each in TransactionStatus if each <= TransactionStatus.COMPLETE_ABORT])
def test_every_state_survives_a_reload(status: TransactionStatus) -> None:
    transaction = Transaction(
        transactional_id="x", producer_id=1, producer_epoch=2, timeout_ms=3, last_update_ms=4, status=status
    )
    for version in (0, 1, 2):
        assert decode_transaction(*transaction_record(transaction, transaction_version=version)) == ("x", transaction)


def test_what_the_log_may_hold_besides() -> None:
    record = transaction_record(full(), transaction_version=2)
    shard = TransactionShard(TransactionConfig(), coordinator_epoch=1)
    unknown = encode_coordinator_key(GroupMetadataKey(group="g"))
    shard.load([record, CoordinatorRecord(unknown, b"?"), tombstone("never heard of")])
    assert shard.transactions == {"x": full()}
    shard.load([tombstone("x")])
    assert not shard.transactions
    assert shard.step(Loaded(), 0)


@pytest.mark.parametrize("status", [-1, 7, 8])
def test_a_state_that_is_none_is_not_taken_for_one(status: int) -> None:
    record = transaction_record(full(), transaction_version=0)
    assert record.value is not None
    at = 2 + 8 + 2 + 4
    broken = record.value[:at] + status.to_bytes(1, "big", signed=True) + record.value[at + 1 :]
    with pytest.raises(MalformedMessage):
        decode_transaction(record.key, broken)


def test_keys_are_those_of_kafka() -> None:
    assert key_of("x") == b"\0\0\0\1x" == encode_coordinator_key(TransactionLogKey(transactional_id="x"))


def test_a_lost_answer_leaves_a_token_unanswered() -> None:
    story = Story()
    story.gives_ids = False
    token: Token = story.init_token()
    story.restart()
    assert token.response is None
    assert not story.shard.transactions
