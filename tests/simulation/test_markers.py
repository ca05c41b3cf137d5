"""Markers of decided transactions in the simulation: whichever node is lost between the decision and the markers, every
partition gets the right one, the next transaction begins, and no reader waits for ever.

The way from the coordinator to the leader is blocked before EndTxn, so that the story happens in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.hostile.batches import produce
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulator.world.cluster import SimNode

from strandline.codec.columns import Record, decode_batch, encode_batch
from strandline.codec.message import Message
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.codec.messages.end_txn_request import EndTxnRequest
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.errors import ErrorCode

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))]
ONE = dataclasses.replace(ORDERS, partitions=1)
SECOND = dataclasses.replace(ORDERS, name="refunds", partitions=1)
STATE = "__transaction_state"
ID = "payments"
SETTINGS = {"transaction.state.log.num.partitions": "1", "broker.session.timeout.ms": "3000"}
TRY_AGAIN = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


class Story:
    """A producer of transactions v2, one request at a time, and what the logs hold in the end."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.producer_id = self.epoch = -1
        self.sequences: dict[str, int] = {}
        self.expected: dict[str, list[str]] = {"orders": [], "refunds": []}
        """What a reader of committed records must see in the end."""

    def coordinator(self) -> SimNode:
        return self.play.leader(STATE)

    def init(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[ID], key_type=1)
        self._patiently(
            lambda: self.play.cluster.up()[0],
            request,
            4,
            FindCoordinatorResponse,
            lambda answer: answer.coordinators[0].error_code,
        )
        request_id = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
        )
        answer = self._patiently(
            self.coordinator, request_id, 5, InitProducerIdResponse, lambda answer: answer.error_code
        )
        self._go_on(answer.producer_id, answer.producer_epoch)

    def _go_on(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences.clear()

    def write(self, topic: str, value: str) -> None:
        sequence = self.sequences.get(topic, 0)
        batch = encode_batch(
            [Record(timestamp_ms=self._now_ms(), value=value.encode())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce(topic, batch, transactional_id=ID, timeout_ms=3_000)
        self._patiently(
            lambda: self.play.leader(topic),
            request,
            12,
            ProduceResponse,
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        self.sequences[topic] = sequence + 1

    def _now_ms(self) -> int:
        runtime = self.play.cluster.up()[0].runtime
        assert runtime is not None
        return runtime.now_ms()

    def end(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commits
        )
        answer = self._patiently(self.coordinator, request, 5, EndTxnResponse, lambda answer: answer.error_code)
        self._go_on(answer.producer_id, answer.producer_epoch)

    def _patiently(
        self,
        target: Callable[[], SimNode],
        request: Message,
        version: int,
        answer_class: type[Message],
        code_of: Callable[[Any], int],
    ) -> Any:
        for _ in range(200):
            answer = self.play.ask(target(), request, version, answer_class)
            code = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode(code_of(answer))
            if code is ErrorCode.NONE:
                return answer
            assert code in TRY_AGAIN, code.name
            self.play.rest(0.1)
        raise AssertionError(f"{type(request).__name__} is refused for ever: {code.name}")

    def settle(self) -> None:
        """All is mended, and every transaction ends without anybody asking."""
        play = self.play
        play.network.heal()
        for node in play.cluster.nodes.values():
            if not node.is_up:
                node.start()
        play.wait_whole()
        play.until(self._is_stable, "no transaction is open, and readers may go to the end", 30.0)
        for topic, values in self.expected.items():
            if topic in play.run.invariants.image.topics:
                assert self.committed(topic) == values, topic

    def _partitions(self) -> Iterator[Any]:
        for topic in self.expected:
            if topic in self.play.run.invariants.image.topics:
                node = self.play.leader(topic).node
                assert node is not None
                yield node.partition(topic, 0)

    def _is_stable(self) -> bool:
        return all(
            partition is not None
            and partition.is_leader
            and partition.last_stable_offset == partition.high_watermark == partition.log.log_end_offset
            for partition in self._partitions()
        )

    def committed(self, topic: str) -> list[str]:
        """What the log of the leader holds, but for what was aborted."""
        node = self.play.leader(topic).node
        assert node is not None
        open_now: dict[int, list[str]] = {}
        seen: list[str] = []
        partition = node.partition(topic, 0)
        assert partition is not None
        for batch in partition.log.batches():
            columns = decode_batch(batch)
            if columns.is_control:
                values = open_now.pop(columns.producer_id, [])
                key = columns.key(0)
                assert key is not None
                seen += values if key[3] else []
            else:
                mine = open_now.setdefault(columns.producer_id, [])
                mine += [(record.value or b"").decode() for record in columns.records()]
        assert not open_now
        return seen


@contextmanager
def story(seed: int) -> Iterator[Story]:
    """Two topics with different leaders, neither of which is led by the coordinator if that can be had."""
    with stage(seed, ONE, SECOND, settings=SETTINGS) as play:
        # What is read and judged there is the work of other clients.
        play.is_over = True
        told = Story(play)
        told.init()
        play.wait_whole()
        yield told
        told.settle()


def block(play: Play, one: SimNode, other: SimNode) -> None:
    if one is not other:
        play.network.block(one.name, other.name)
        play.network.block(other.name, one.name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_leader_is_lost_before_it_gets_its_marker(seed: int, commits: bool) -> None:
    with story(seed) as told:
        play = told.play
        for number in range(3):
            told.write("orders", f"{number} orders")
            told.write("refunds", f"{number} refunds")
            coordinator, leader = told.coordinator(), play.leader("orders")
            if leader is coordinator:
                leader = play.leader("refunds")
            block(play, coordinator, leader)
            told.end(commits=commits)
            if commits:
                told.expected["orders"].append(f"{number} orders")
                told.expected["refunds"].append(f"{number} refunds")
            if leader is not coordinator:
                leader.kill()
            play.rest(play.random.uniform(0.0, 6.0))
            play.network.heal()
            if not leader.is_up:
                leader.start()
        told.settle()
        told.write("orders", "last")
        told.end(commits=True)
        told.expected["orders"].append("last")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_coordinator_is_lost_before_it_sends_markers(seed: int, commits: bool) -> None:
    with story(seed) as told:
        play = told.play
        for number in range(3):
            told.write("orders", f"{number} orders")
            told.write("refunds", f"{number} refunds")
            coordinator = told.coordinator()
            for topic in ("orders", "refunds"):
                block(play, coordinator, play.leader(topic))
            told.end(commits=commits)
            if commits:
                told.expected["orders"].append(f"{number} orders")
                told.expected["refunds"].append(f"{number} refunds")
            coordinator.kill()
            play.network.heal()
            play.rest(play.random.uniform(0.0, 6.0))
            coordinator.start()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_is_cut_off_decides_nothing(seed: int) -> None:
    """Another takes over; what the old one still believes reaches no partition."""
    with story(seed) as told:
        play = told.play
        told.write("orders", "first")
        coordinator = told.coordinator()
        for other in play.cluster.nodes.values():
            block(play, coordinator, other)
        request = EndTxnRequest(
            transactional_id=ID, producer_id=told.producer_id, producer_epoch=told.epoch, committed=True
        )
        # Clients reach it, and it cannot commit its decision.
        answer = play.ask(coordinator, request, 5, EndTxnResponse)
        assert answer is None or answer.error_code in TRY_AGAIN
        told.end(commits=False)
        play.network.heal()
        told.settle()
        told.write("orders", "second")
        told.end(commits=True)
        told.expected["orders"].append("second")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_is_deleted_holds_nobody_up(seed: int) -> None:
    with story(seed) as told:
        play = told.play
        told.write("orders", "kept")
        told.write("refunds", "deleted")
        coordinator, leader = told.coordinator(), play.leader("refunds")
        if leader is coordinator:
            pytest.skip("the marker is written in the turn of the decision")
        block(play, coordinator, leader)
        told.end(commits=True)
        told.expected["orders"].append("kept")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name="refunds")], topic_names=["refunds"], timeout_ms=5_000
        )
        answer = play.ask(play.controller(), request, 6, DeleteTopicsResponse)
        assert answer is None or answer.responses[0].error_code == ErrorCode.NONE
        play.until(lambda: "refunds" not in play.run.invariants.image.topics, "the topic is deleted")
        play.network.heal()
        told.write("orders", "next")
        told.end(commits=True)
        told.expected["orders"].append("next")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_that_nobody_ends_is_aborted_by_whoever_coordinates_then(seed: int) -> None:
    with story(seed) as told:
        play = told.play
        told.write("orders", "left open")
        coordinator = told.coordinator()
        coordinator.kill()
        play.rest(play.random.uniform(0.0, 5.0))
        coordinator.start()
        play.rest(10.0 + play.random.uniform(5.0, 10.0))
