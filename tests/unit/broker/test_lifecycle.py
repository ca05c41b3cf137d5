"""A broker's standing, in a small cluster of real controllers: it comes, is heard of, is replaced, and goes."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
from tests.unit.broker.small_cluster import CLIENT_PORT, CLUSTER_ID, CONTROLLER_PORT, Member, SmallCluster

from strandline.broker.kraft.controller_registration import ControllerRegistration, registration_request
from strandline.broker.kraft.lifecycle import Identity, Lifecycle, LifecycleState, Timing
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.unregister_broker_request import UnregisterBrokerRequest
from strandline.errors import ErrorCode
from strandline.quorum.controller.features import SUPPORTED_FEATURES


def another(
    member: Member, *, incarnation: int = 99, cluster_id: str = CLUSTER_ID, previous_epoch: int = -1
) -> Lifecycle:
    """Another life of a broker, or another process with its id."""
    return Lifecycle(
        member.runtime,
        member.channel("another"),
        Identity(
            broker_id=member.node_id,
            cluster_id=cluster_id,
            incarnation_id=uuid.UUID(int=incarnation),
            endpoints=[("PLAINTEXT", member.host_name, CLIENT_PORT)],
            features=SUPPORTED_FEATURES,
            log_dirs=[member.directory_id],
            previous_broker_epoch=previous_epoch,
        ),
        timing=Timing.of(member.config),
        metadata_offset=lambda: member.applied - 1,
    )


def test_a_broker_is_unfenced_once_it_has_read_its_registration_and_is_ready() -> None:
    cluster = SmallCluster()
    cluster.elect(1)
    member = cluster[2]
    told: list[str] = []
    member.lifecycle.on_running = lambda: told.append("running")
    member.lifecycle.on_registered = lambda epoch: told.append(f"registered {epoch >= 0}")
    member.lifecycle.start()
    cluster.run(3)
    assert told == ["registered True"]
    assert member.lifecycle.state is LifecycleState.FENCED
    assert member.lifecycle.is_fenced
    assert cluster[1].image.brokers[2].registration.fenced, "it was not ready"
    member.lifecycle.be_ready()
    cluster.run(1)
    assert told == ["registered True", "running"]
    assert member.lifecycle.state is LifecycleState.RUNNING
    assert not member.lifecycle.is_fenced
    assert not cluster[3].image.brokers[2].registration.fenced
    assert cluster[3].image.brokers[2].epoch == member.lifecycle.broker_epoch


def test_registration_waits_for_a_controller() -> None:
    cluster = SmallCluster()
    cluster[2].lifecycle.start()
    cluster[2].lifecycle.be_ready()
    cluster.run(20)
    assert cluster[2].lifecycle.state is LifecycleState.STARTING
    cluster.elect(3)
    cluster.run(3)
    assert cluster[2].lifecycle.state is LifecycleState.RUNNING


def test_a_broker_gives_up_after_its_registration_timeout(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SmallCluster(initial_broker_registration_timeout_ms="5000")
    refused: list[str] = []
    cluster[2].lifecycle.on_refused = refused.append
    cluster[2].lifecycle.start()
    cluster.run(60)
    (reason,) = refused
    assert "cannot be reached to register broker 2" in reason
    assert "initial.broker.registration.timeout.ms" in reason


def test_heartbeats_go_on_through_a_change_of_controllers() -> None:
    cluster = SmallCluster()
    cluster.start()
    epochs = [member.lifecycle.broker_epoch for member in cluster.members]
    for leader in (2, 3, None, 1):
        cluster.elect(leader)
        cluster.run(6)
    cluster.run(30)
    assert [member.lifecycle.broker_epoch for member in cluster.members] == epochs, "no registration was lost"
    assert not any(member.lifecycle.is_fenced for member in cluster.members)


@pytest.mark.parametrize("answers_take_s", [0.0, 1.2])
def test_who_cannot_reach_the_controller_knows_that_it_is_fenced_no_later_than_the_controller(
    answers_take_s: float,
) -> None:
    cluster = SmallCluster(broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500")
    cluster.start()
    member = cluster[2]
    cluster.network.slow["node-1", "node-2"] = answers_take_s
    heard_at = member.lifecycle._heard_at
    # Just after an answer that took its time: what counts is when it was asked for.
    assert cluster.loop.run_while(lambda: member.lifecycle._heard_at == heard_at, within_s=10)
    heard_at = member.lifecycle._heard_at
    assert cluster.loop.run_while(lambda: member.lifecycle._heard_at == heard_at, within_s=10)
    for other in ("node-1", "node-3"):
        cluster.network.split(["node-2"], [other])
    while not cluster[1].controller._state.image.brokers[2].registration.fenced:  # the moment it is decided
        assert cluster.loop.now < 60
        cluster.run(0.01)
    assert member.lifecycle.is_fenced, "nobody else may lead while this one still acknowledges"
    cluster.network.heal()
    cluster.run(10)
    assert not member.lifecycle.is_fenced
    assert not cluster[3].image.brokers[2].registration.fenced


def test_a_broker_that_stood_still_is_fenced_in_its_own_eyes_when_it_wakes() -> None:
    cluster = SmallCluster()
    cluster.start()
    member = cluster[2]
    seen: list[bool] = []
    member.runtime.call_later(5, lambda: seen.append(member.lifecycle.is_fenced))
    member.runtime.actor.pause()
    cluster.run(20)
    member.runtime.actor.resume()
    cluster.run(0.0001)
    assert seen == [True]
    cluster.run(10)
    assert not member.lifecycle.is_fenced


def test_another_process_with_the_same_id_is_refused_while_this_one_lives(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SmallCluster(initial_broker_registration_timeout_ms="20000")
    cluster.start()
    refused: list[str] = []
    twin = another(cluster[2])
    twin.on_refused = refused.append
    twin.start()
    cluster.run(10)
    assert twin.state is LifecycleState.STARTING
    assert "another process is registered as broker 2 and lives" in caplog.text
    cluster.run(20)
    assert len(refused) == 1
    assert cluster[2].lifecycle.state is LifecycleState.RUNNING


def test_after_a_crash_the_next_life_is_taken_when_the_session_of_the_last_is_over() -> None:
    cluster = SmallCluster()
    cluster.start()
    first_epoch = cluster[2].lifecycle.broker_epoch
    cluster[2].lifecycle.close()
    life = another(cluster[2])
    life.start()
    life.be_ready()
    cluster.run(3)
    assert life.state is LifecycleState.STARTING
    cluster.run(12)
    assert life.state is LifecycleState.RUNNING
    assert life.broker_epoch > first_epoch


def test_a_registration_that_is_void_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SmallCluster()
    cluster.start()
    former = cluster[3].lifecycle.broker_epoch
    assert cluster.ask(UnregisterBrokerRequest(broker_id=3), 0, node_id=1).error_code == 0
    cluster.run(10)
    assert cluster[3].lifecycle.state is LifecycleState.RUNNING
    assert cluster[3].lifecycle.broker_epoch > former
    assert "no longer knows broker 3" in caplog.text


def test_a_directory_of_another_cluster_is_refused_in_a_sentence() -> None:
    cluster = SmallCluster()
    cluster.start()
    refused: list[str] = []
    stranger = another(cluster[2], cluster_id="another-cluster")
    stranger.on_refused = refused.append
    stranger.start()
    cluster.run(1)
    (reason,) = refused
    assert "belongs to cluster another-cluster" in reason


# Going


def test_leaderships_are_elsewhere_before_a_broker_goes() -> None:
    cluster = SmallCluster(num_partitions="30")
    cluster.start()
    topic = CreatableTopic(name="a", num_partitions=30, replication_factor=3)
    answer = cluster.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, node_id=1)
    assert answer.topics[0].error_code == 0
    cluster.run(1)
    partitions = cluster[1].image.topics["a"].partitions
    assert any(partition.leader == 2 for partition in partitions)
    done: list[float] = []
    cluster[2].lifecycle.begin_shutdown(lambda: done.append(cluster.loop.now))
    assert not done
    assert cluster.loop.run_while(lambda: not done, within_s=5)
    for member in (cluster[1], cluster[3]):
        assert all(partition.leader in (1, 3) for partition in member.image.topics["a"].partitions)
    cluster.run(5)
    assert cluster[2].lifecycle.state is LifecycleState.STOPPED
    assert len(done) == 1
    assert cluster[1].image.brokers[2].registration.fenced


def test_without_a_controller_a_broker_goes_after_a_while() -> None:
    cluster = SmallCluster()
    cluster.start()
    cluster.elect(None)
    done: list[float] = []
    began = cluster.loop.now
    cluster[2].lifecycle.begin_shutdown(lambda: done.append(cluster.loop.now))
    cluster.run(100)
    (ended,) = done
    assert Timing().shutdown_silence_s <= ended - began < Timing().shutdown_silence_s + 1


def test_a_broker_that_never_was_unfenced_leads_nothing_and_goes_at_once() -> None:
    cluster = SmallCluster()
    cluster.elect(1)
    member = cluster[2]
    member.lifecycle.start()
    cluster.run(3)
    assert member.lifecycle.state is LifecycleState.FENCED
    cluster.elect(None)
    done: list[int] = []
    member.lifecycle.begin_shutdown(lambda: done.append(1))
    cluster.run(0.01)
    assert done == [1], "there is nothing to hand over, and no controller to wait for"


def test_a_broker_that_never_was_registered_goes_at_once() -> None:
    cluster = SmallCluster()
    done: list[int] = []
    cluster[2].lifecycle.start()
    cluster[2].lifecycle.begin_shutdown(lambda: done.append(1))
    assert not done
    cluster.run(0.01)
    assert done == [1]


# Controllers


def test_controllers_make_themselves_known_and_are_listed_where_controllers_are_asked() -> None:
    cluster = SmallCluster()
    cluster.start()
    for member in cluster.members:
        request = registration_request(
            member.node_id,
            uuid.UUID(int=member.node_id),
            endpoints=[("CONTROLLER", member.host_name, CONTROLLER_PORT)],
            features=SUPPORTED_FEATURES,
        )
        known = partial(_known_controller, member)
        ControllerRegistration(member.runtime, member.controller_channel, request, known=known).start()
    cluster.run(2)
    written = len(cluster.log)
    cluster.run(20)
    assert len(cluster.log) == written, "who is known says nothing more"
    answer = cluster.ask(DescribeClusterRequest(endpoint_type=2), 1, node_id=3, port=CONTROLLER_PORT)
    assert (answer.error_code, answer.controller_id, answer.endpoint_type) == (0, 1, 2)
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [
        (number, f"node-{number}", CONTROLLER_PORT) for number in (1, 2, 3)
    ]
    for port, kind, code in (
        (CONTROLLER_PORT, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (CLIENT_PORT, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (CONTROLLER_PORT, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        refused = cluster.ask(DescribeClusterRequest(endpoint_type=kind), 1, node_id=2, port=port)
        assert refused.error_code == code


def _known_controller(member: Member) -> uuid.UUID | None:
    record = member.image.kept.by_identity.get(("controller", member.node_id))
    return None if record is None else record.incarnation_id


# What goes with the epoch


@pytest.mark.parametrize("seed", range(5))
def test_no_producer_id_is_given_twice(seed: int) -> None:
    cluster = SmallCluster(seed)
    cluster.start()
    given: list[int] = []
    refused = 0

    def on_id(producer_id: int, error: BaseException | None) -> None:
        nonlocal refused
        if error is None:
            given.append(producer_id)
        else:
            refused += 1

    asked = 0
    rng = cluster.loop.derive("test")
    for step in range(60):
        for member in cluster.members:
            for _ in range(rng.randrange(200)):
                asked += 1
                member.producer_ids.next(on_id)
        if step % 7 == 3:
            cluster.elect(rng.choice((1, 2, 3, None)))
        if step % 5 == 0:
            for transport in list(cluster.network.transports.values()):
                if transport.peer_port == CONTROLLER_PORT and rng.random() < 0.5:
                    cluster.network.reset(transport)
        cluster.run(rng.random())
    cluster.elect(1)
    cluster.run(20)
    assert len(given) + refused == asked
    assert len(set(given)) == len(given) > 1000, f"seed {seed}"
