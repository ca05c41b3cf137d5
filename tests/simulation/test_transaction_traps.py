"""One story for each trap of transactions that others fell into. The trap is set on purpose; the invariants and the
checker judge: nothing aborted is seen, nothing is torn, every input counts once, and no client waits for ever.

What happens between a decision and its markers is told in `test_markers`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.simulation.by_hand import STATE, ByHand
from tests.simulation.stage import Play, stage
from tests.simulator.clients.transactional import NEW, OLD
from tests.simulator.options import GROUP_SETTINGS, TopicOptions
from tests.simulator.world.cluster import SimNode
from tests.simulator.world.wire import Wire

from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from strandline.codec.messages.elect_leaders_response import ElectLeadersResponse
from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.codec.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from strandline.codec.messages.write_txn_markers_response import WriteTxnMarkersResponse
from strandline.errors import ErrorCode

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
FIRST_NEW = [NEW, pytest.param(OLD, marks=pytest.mark.slow)]
FIRST_COMMIT = [True, pytest.param(False, marks=pytest.mark.slow)]
FIRST_ABORT = [False, pytest.param(True, marks=pytest.mark.slow)]
LEDGER = TopicOptions("ledger", 1, 3, {"min.insync.replicas": "2", "internal.segment.bytes": "2000"})
MIRROR = dataclasses.replace(LEDGER, name="mirror")
SETTINGS = {"transaction.state.log.num.partitions": "1", "broker.session.timeout.ms": "3000"}
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
QUICK = {**GROUP_SETTINGS, **SETTINGS, "group.initial.rebalance.delay.ms": "500"}


@contextmanager
def story(seed: int, *, flush_mode: str = "auto", **settings: str) -> Iterator[Play]:
    """Two topics that transactions write to, and readers of committed records."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    outputs = tuple(
        dataclasses.replace(each, configs={**each.configs, "flush.mode": flush_mode}) for each in (LEDGER, MIRROR)
    )
    with stage(seed, outputs=outputs, settings={**SETTINGS, **named}) as play:
        play.run.start_readers()
        yield play


def cut(play: Play, one: SimNode, other: SimNode) -> None:
    if one is not other:
        play.network.block(one.name, other.name)
        play.network.block(other.name, one.name)


# KIP-890, KAFKA-17754: a late EndTxn ends the next transaction


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("late", FIRST_COMMIT, ids=["late commit", "late abort"])
@pytest.mark.parametrize("next_commits", FIRST_ABORT, ids=["then abort", "then commit"])
def test_a_late_end_on_another_connection_ends_nothing(seed: int, late: bool, next_commits: bool) -> None:
    with story(seed) as play:
        producer = ByHand(play)
        producer.begin()
        for _ in range(2):
            producer.write("ledger")
            copy = producer.end_request(commits=late)
            assert producer.end(commits=late) is ErrorCode.NONE
            producer.write("ledger")
            play.rest(play.random.uniform(0.0, 0.5))
            # The answer to the first copy was lost in a slow network, say; here is the second.
            code, _ = producer.send_end(copy)
            assert code in FENCED
            producer.write("mirror")
            assert producer.end(commits=next_commits) is ErrorCode.NONE
            code, _ = producer.send_end(copy)
            assert code in FENCED


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_end_of_the_old_protocol_is_fenced_once_the_epoch_was_raised(seed: int) -> None:
    """Its client did not know what became of it, so it began again before the next transaction."""
    with story(seed) as play:
        producer = ByHand(play, speaks=OLD)
        producer.begin()
        producer.write("ledger")
        copy = producer.end_request(commits=True)
        assert producer.end(commits=True) is ErrorCode.NONE
        assert producer.begin(names_itself=True) is ErrorCode.NONE
        producer.write("ledger")
        code, _ = producer.send_end(copy)
        assert code in FENCED
        producer.write("mirror")
        assert producer.end(commits=False) is ErrorCode.NONE


@pytest.mark.parametrize("seed", SEEDS)
def test_an_end_that_is_asked_for_twice_happens_once(seed: int) -> None:
    with story(seed) as play:
        producer = ByHand(play)
        producer.begin()
        producer.write("ledger")
        producer.write("mirror")
        copy = producer.end_request(commits=True)
        assert producer.end(commits=True) is ErrorCode.NONE
        producer.wait_stable()
        code, answer = producer.send_end(copy)
        assert (code, answer.producer_id, answer.producer_epoch) == (
            ErrorCode.NONE,
            producer.producer_id,
            producer.epoch,
        )
        changed = producer.end_request(commits=False)
        changed.producer_epoch = copy.producer_epoch
        code, _ = producer.send_end(changed)
        assert code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_marker_of_the_old_protocol_ends_nothing(seed: int) -> None:
    """The network held a WriteTxnMarkers back, and the coordinator sent it once more by another connection."""
    with story(seed) as play:
        producer = ByHand(play, speaks=OLD)
        producer.begin()
        coordinator, leader, _ = play.cluster.up()
        lead(play, STATE, coordinator)
        lead(play, "ledger", leader)
        coordinator_id = play.image_of(STATE).leader
        client = play.client()
        old = Wire(client.runtime, client.network, leader.name, 9092, client_id=f"markers-{coordinator_id}")
        told: list[object] = []
        old.ask(ApiVersionsRequest(), 0, ApiVersionsResponse, told.append, timeout_s=8.0)
        play.until(lambda: told, "the connection is there")
        producer.write("ledger")
        assert producer.end(commits=True) is ErrorCode.NONE
        producer.wait_stable()
        producer.write("ledger")
        copy = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="ledger", partition_indexes=[0])],
            coordinator_epoch=play.image_of(STATE).leader_epoch,
        )
        told.clear()
        old.ask(WriteTxnMarkersRequest(markers=[copy]), 2, WriteTxnMarkersResponse, told.append, timeout_s=8.0)
        play.until(lambda: told, "an answer, or that there is none")
        assert has_open_transaction(leader, producer), "its end is for the next decision"
        assert producer.end(commits=False) is ErrorCode.NONE
        producer.wait_stable()
        client.kill()


# KAFKA-9144, KIP-890: what is written late begins a transaction that never ends


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("goes_on", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["goes on", "idle"])
def test_a_late_write_of_the_old_protocol_begins_nothing(seed: int, goes_on: bool) -> None:
    with story(seed) as play:
        producer = ByHand(play, speaks=OLD)
        producer.begin()
        producer.write("ledger")
        late = producer.batch("ledger")
        assert producer.end(commits=False) is ErrorCode.NONE
        producer.wait_stable()
        if goes_on:
            producer.write("mirror")
        told = producer.send("ledger", late)
        assert told.error_code == ErrorCode.TRANSACTION_ABORTABLE
        if goes_on:
            assert producer.end(commits=True) is ErrorCode.NONE
        producer.wait_stable()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_does_not_know_its_successor_lets_no_late_write_in(seed: int) -> None:
    """It leads the partition, too: the successor's marker is there, and its own memory says that all is open."""
    with story(seed, broker_session_timeout_ms="30000") as play:
        producer = ByHand(play, speaks=OLD, timeout_s=60.0)
        producer.begin()
        controller = play.controller()
        deposed, successor = (each for each in play.cluster.up() if each is not controller)
        lead(play, "ledger", deposed)
        lead(play, STATE, deposed)
        producer.write("ledger")
        late = producer.batch("ledger")
        cut(play, deposed, controller)
        lead(play, STATE, successor)
        assert producer.end(commits=False) is ErrorCode.NONE
        play.until(lambda: not has_open_transaction(deposed, producer), "the marker is in the log")
        play.ask(deposed, late, 11, ProduceResponse)
        play.network.heal()
        assert producer.send("ledger", late).error_code == ErrorCode.TRANSACTION_ABORTABLE
        producer.wait_stable()


def has_open_transaction(leader: SimNode, producer: ByHand) -> bool:
    assert leader.node is not None
    partition = leader.node.partition("ledger", 0)
    assert partition is not None
    return producer.producer_id in partition.producers.open_transactions


def lead(play: Play, topic: str, node: SimNode) -> None:
    """Have the node lead the topic's partition: it becomes the first of the replicas, and is elected."""
    (node_id,) = (each for each, other in play.cluster.nodes.items() if other is node)
    replicas = [node_id, *(each for each in play.image_of(topic).replicas if each != node_id)]
    reassigned = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    elected = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=[0])])
    play.ask(
        play.controller(),
        AlterPartitionReassignmentsRequest(topics=[reassigned]),
        0,
        AlterPartitionReassignmentsResponse,
    )
    play.until(lambda: play.image_of(topic).replicas[0] == node_id, "the order of replicas is another")
    play.ask(play.controller(), elected, 2, ElectLeadersResponse)
    play.until(lambda: play.image_of(topic).leader == node_id, f"{node.name} leads {topic}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("goes_on", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["goes on", "idle"])
def test_a_late_write_of_the_new_protocol_is_fenced(seed: int, goes_on: bool) -> None:
    with story(seed) as play:
        producer = ByHand(play)
        producer.begin()
        producer.write("ledger")
        late = producer.batch("ledger")
        assert producer.end(commits=False) is ErrorCode.NONE
        producer.wait_stable()
        if goes_on:
            producer.write("mirror")
        assert producer.send("ledger", late).error_code in FENCED
        if goes_on:
            producer.write("ledger")
            assert producer.end(commits=True) is ErrorCode.NONE
        producer.wait_stable()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", FIRST_NEW)
def test_a_transaction_that_its_client_left_open_holds_readers_up_no_longer_than_its_timeout(
    seed: int, speaks: int
) -> None:
    with story(seed) as play:
        producer = ByHand(play, speaks=speaks, timeout_s=4.0)
        producer.begin()
        other = ByHand(play, "others")
        other.begin()
        play.run.invariants.stabilities.timeout_s = 4.0
        play.run.invariants.stabilities.calm_since = play.loop.now
        producer.write("ledger")
        producer.write("mirror")
        late = producer.batch("ledger")
        producer.leave_open()
        other.write("ledger")
        assert other.end(commits=True) is ErrorCode.NONE
        play.rest(play.random.uniform(0.0, 3.0))
        assert not producer.is_stable()
        producer.wait_stable(4.0 + 10.0)
        # The producer that left it open is fenced, and may come back by asking for the next epoch (KIP-588).
        assert producer.send("ledger", late).error_code in FENCED
        assert producer.begin(names_itself=True) is ErrorCode.NONE
        assert producer.send("ledger", late).error_code in FENCED
        producer.write("ledger")
        assert producer.end(commits=True) is ErrorCode.NONE


# Two incarnations with one transactional id


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", FIRST_NEW)
def test_a_second_incarnation_locks_the_first_one_out(seed: int, speaks: int) -> None:
    with story(seed) as play:
        first = ByHand(play, speaks=speaks)
        first.begin()
        first.write("ledger")
        late = first.batch("ledger")
        second = ByHand(play, speaks=speaks)
        assert second.begin() is ErrorCode.NONE
        assert first.send("ledger", late).error_code in FENCED
        second.write("ledger")
        assert first.end(commits=True) in (*FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        second.write("mirror")
        assert second.end(commits=True) is ErrorCode.NONE
        assert first.begin(names_itself=True) in FENCED


# Redpanda #6018, KAFKA-20310: the coordinator's state


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", FIRST_NEW)
def test_whatever_a_coordinator_has_said_its_successor_knows(seed: int, speaks: int) -> None:
    """All machines lose power right after each answer; who coordinates next has nothing but the log."""
    with story(seed, flush_mode="ack") as play:
        producer = ByHand(play, speaks=speaks, timeout_s=60.0)

        def lose_power() -> None:
            for node in play.cluster.nodes.values():
                node.power_cut()
            for node in play.cluster.nodes.values():
                node.start()

        producer.begin()
        lose_power()
        # Were the epoch forgotten, the next one would get the same.
        second = ByHand(play, speaks=speaks, timeout_s=60.0)
        second.begin()
        if speaks == OLD:
            assert second.add("ledger", "mirror") is ErrorCode.NONE
            lose_power()
        second.write("ledger")
        second.write("mirror")
        lose_power()
        assert second.end(commits=True) is ErrorCode.NONE
        lose_power()
        play.wait_whole()
        assert producer.begin(names_itself=True) in FENCED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("commits", FIRST_COMMIT, ids=["commit", "abort"])
def test_no_marker_is_written_before_the_decision_is_committed(seed: int, commits: bool) -> None:
    """A follower of the coordinator is out of reach, and still counts: nothing is decided until it is given up."""
    with story(seed, replica_lag_time_max_ms="6000", broker_session_timeout_ms="9000") as play:
        producer = ByHand(play, timeout_s=60.0)
        producer.begin()
        producer.write("ledger")
        producer.write("mirror")
        coordinator = producer.coordinator()
        leaders = {play.leader(topic).name for topic in ("ledger", "mirror")}
        followers = [each for each in play.followers(STATE) if each.name not in leaders]
        follower = play.random.choice(followers or play.followers(STATE))
        cut(play, coordinator, follower)
        assert producer.end(commits=commits) is ErrorCode.NONE
        play.network.heal()
        producer.wait_stable()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("commits", FIRST_COMMIT, ids=["commit", "abort"])
def test_a_coordinator_that_is_replaced_while_it_decides(seed: int, commits: bool) -> None:
    """Its client does not know whether the decision got through. The next coordinator does, and keeps to it."""
    with story(seed) as play:
        producer = ByHand(play, timeout_s=60.0)
        producer.begin()
        for _ in range(2):
            producer.write("ledger")
            producer.write("mirror")
            coordinator = producer.coordinator()
            followers = play.followers(STATE)
            cut(play, coordinator, play.random.choice(followers))
            transaction = producer.transaction
            transaction.asked_ns = play.run.history.now_ns() if commits else None
            request = producer.end_request(commits=commits)
            client = play.client()
            client.brokers[1] = (coordinator.name, 9092)
            wire = client.wire(1, "end")
            assert wire is not None
            wire.ask(request, 5, EndTxnResponse, lambda _: None, timeout_s=8.0)
            play.rest(play.random.uniform(0.0, 1.5))
            coordinator.kill()
            play.network.heal()
            play.rest(play.random.uniform(0.0, 4.0))
            coordinator.start()
            assert producer.end(commits=commits) is ErrorCode.NONE


# KIP-854, KIP-360: producers are forgotten, and sequences end


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", FIRST_NEW)
def test_a_producer_is_not_forgotten_inside_its_transaction(seed: int, speaks: int) -> None:
    expiry = {"producer_id_expiration_ms": "1500", "producer_id_expiration_check_interval_ms": "500"}
    with story(seed, **expiry) as play:
        producer = ByHand(play, speaks=speaks, timeout_s=60.0)
        producer.begin()
        producer.write("ledger")
        play.rest(play.random.uniform(4.0, 8.0))
        assert not producer.is_stable()
        leader = play.leader("ledger")
        if play.random.random() < 0.5:
            leader.kill()
            play.rest(0.5)
            leader.start()
        producer.write("ledger")
        play.rest(4.0)
        assert producer.end(commits=True) is ErrorCode.NONE
        producer.wait_stable()
        play.rest(4.0)
        # Forgotten by now; the next transaction begins all the same.
        producer.write("ledger")
        assert producer.end(commits=False) is ErrorCode.NONE


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_sequences_go_round(seed: int) -> None:
    with story(seed) as play:
        producer = ByHand(play, speaks=OLD, timeout_s=60.0)
        producer.begin()
        producer.sequences["ledger"] = 2**31 - 2
        producer.add("ledger")
        across = producer.batch("ledger", 5)
        told = producer.send("ledger", across)
        assert told.error_code == ErrorCode.NONE
        assert producer.sequences["ledger"] == 3
        behind = producer.write("ledger", 2)
        assert behind == told.base_offset + 5
        assert producer.send("ledger", across).base_offset == told.base_offset
        play.wait_whole()
        leader = play.leader("ledger")
        leader.kill()
        again = producer.send("ledger", across)
        assert again.base_offset == told.base_offset
        producer.write("ledger")
        leader.start()
        assert producer.end(commits=True) is ErrorCode.NONE


# What was aborted, after cuts and restarts


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_aborted_is_known_after_restarts_and_cuts(seed: int) -> None:
    with story(seed) as play:
        producers = [ByHand(play, f"payments-{number}", timeout_s=60.0) for number in range(2)]
        for producer in producers:
            producer.begin()
        for round_number in range(3):
            for producer in producers * 3:
                producer.write("ledger", 3)
                if play.random.random() < 0.5:
                    producer.write("mirror")
                if play.random.random() < 0.7:
                    assert producer.end(commits=play.random.random() < 0.4) is ErrorCode.NONE
            leader = play.leader("ledger")
            if round_number == 1:
                # A leader writes what no follower gets, markers among it, and is cut when it comes back.
                for other in play.cluster.nodes.values():
                    cut(play, leader, other)
                play.rest(0.3)
            if play.random.random() < 0.5:
                leader.kill()
            else:
                leader.power_cut()
            play.rest(play.random.uniform(0.0, 4.0))
            play.network.heal()
            leader.start()
            play.wait_whole()
            play.rest(5.5)
        for producer in producers:
            if producer.is_open:
                producer.end(commits=False)
