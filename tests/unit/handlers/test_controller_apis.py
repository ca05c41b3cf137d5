"""What brokers and tools ask of the active controller, through the handlers and over the wire format."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.handlers.node_of_one import NodeOfOne, ask

from strandline.codec.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from strandline.codec.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from strandline.codec.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from strandline.codec.messages.alter_partition_response import AlterPartitionResponse
from strandline.codec.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from strandline.codec.messages.assign_replicas_to_dirs_request import DirectoryData as DirectoryAssigned
from strandline.codec.messages.assign_replicas_to_dirs_request import PartitionData as PartitionAssigned
from strandline.codec.messages.assign_replicas_to_dirs_request import TopicData as TopicAssigned
from strandline.codec.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from strandline.codec.messages.broker_registration_response import BrokerRegistrationResponse
from strandline.codec.messages.controller_registration_request import ControllerRegistrationRequest
from strandline.codec.messages.controller_registration_response import ControllerRegistrationResponse
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from strandline.codec.messages.elect_leaders_response import ElectLeadersResponse
from strandline.codec.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from strandline.codec.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from strandline.codec.messages.unregister_broker_request import UnregisterBrokerRequest
from strandline.codec.messages.unregister_broker_response import UnregisterBrokerResponse
from strandline.errors import ErrorCode, RequestError
from strandline.handlers import (
    k43_elect_leaders,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k56_alter_partition,
    k62_broker_registration,
    k63_broker_heartbeat,
    k64_unregister_broker,
    k67_allocate_producer_ids,
    k70_controller_registration,
    k73_assign_replicas_to_dirs,
)
from strandline.quorum.controller.config_changes import AlterOperation, ConfigAlteration, ConfigOperation
from strandline.quorum.controller.controller import TopicRef
from strandline.quorum.controller.elections import ELECT_UNCLEAN
from strandline.quorum.controller.features import SAFE_DOWNGRADE, SUPPORTED_FEATURES, FeatureUpdate
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.image.cluster_image import (
    ELIGIBLE_LEADER_REPLICAS,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    PartitionImage,
)

SESSION_S = 9.0


class ControllerNode(NodeOfOne):
    """A node that is the active controller and whose brokers are elsewhere."""

    directory_id = uuid.UUID(int=1)

    def __init__(self, brokers: int = 3, **settings: str) -> None:
        super().__init__(start=False, **settings)
        node = self

        class Log(SimpleNamespace):
            @property
            def next_offset(self) -> int:
                return len(node.log) + sum(len(records) for records, _ in node.writes)

        self.metadata = Log(is_leader=True, is_confirmed=True, epoch=1)  # type: ignore[assignment]
        self.controller.activate(self.image, self.runtime.monotonic())
        self.controller_write(self.controller.bootstrap(), lambda error: None)
        self.flush()
        for broker_id in range(1, brokers + 1):
            self.join(broker_id)

    def register(self, broker_id: int, incarnation: int | None = None, version: int = 4, **changes: Any) -> Any:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=self.cluster_id,
            incarnation_id=uuid.UUID(int=incarnation or broker_id),
            listeners=[Listener("PLAINTEXT", f"host-{broker_id}", 9092)],
            features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            log_dirs=[uuid.UUID(int=1000 + broker_id)],
            rack=None,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return ask(k62_broker_registration, self, request, version, BrokerRegistrationResponse)

    def beat(self, broker_id: int, version: int = 2, **changes: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch if broker_id in self.image.brokers else 0,
            current_metadata_offset=len(self.log) - 1,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return ask(k63_broker_heartbeat, self, request, version, BrokerHeartbeatResponse)

    def join(self, broker_id: int, incarnation: int | None = None) -> None:
        assert self.register(broker_id, incarnation).error_code == 0
        assert not self.beat(broker_id).is_fenced

    def create(self, name: str, *replica_lists: list[int], **configs: str) -> uuid.UUID:
        topic = NewTopic(
            name,
            assignment=list(enumerate(replica_lists)),
            configs=[(key.replace("_", "."), value) for key, value in configs.items()],
        )
        records, (created,) = self.controller.create_topics([topic])
        assert not isinstance(created, RequestError), created
        self.controller_write(records, lambda error: None)
        self.flush()
        return created.id

    def partition_of(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def work_off(self) -> None:
        """Let time do its work, and write what comes of it."""
        while True:
            records = self.controller.tick(self.runtime.monotonic())
            if not records and not self.controller.is_busy:
                return
            self.controller_write(records, lambda error: None)
            self.flush()

    def alter(self, name: str, isr: list[int], *, version: int = 3, leader: int | None = None, **changes: Any) -> Any:
        partition = self.partition_of(name)
        leader = partition.leader if leader is None else leader
        asked = PartitionData(
            partition_index=0, leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch
        )
        if version >= 3:
            asked.new_isr_with_epochs = [BrokerState(each, self.image.brokers[each].epoch) for each in isr]
        else:
            asked.new_isr = isr
        broker_epoch = changes.pop("broker_epoch", None) or self.image.brokers[leader].epoch
        for key, value in changes.items():
            setattr(asked, key, value)
        request = AlterPartitionRequest(leader, broker_epoch, [TopicData(self.image.topics[name].id, [asked])])
        return ask(k56_alter_partition, self, request, version, AlterPartitionResponse)


# Registration


@pytest.mark.parametrize("version", range(2, 5))
def test_a_broker_registers_and_its_epoch_is_the_offset_of_the_record(version: int) -> None:
    node = ControllerNode(brokers=0)
    answer = node.register(5, version=version)
    assert answer.error_code == 0
    assert node.image.brokers[5].epoch == answer.broker_epoch == len(node.log) - 1
    assert node.image.brokers[5].registration.fenced


def test_versions_without_directories_are_refused() -> None:
    node = ControllerNode(brokers=0)
    assert node.register(5, version=1).error_code == ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid.UUID(int=99)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid.UUID(int=777)] * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid.UUID(int=1001)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": [Feature("metadata.version", 1, 29)]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": [Feature("metadata.version", 7, 30)]}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_registrations_that_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    node = ControllerNode(brokers=1)
    assert (node.register(9, **changes).error_code, node.register(9, **changes).broker_epoch) == (code, -1)
    assert 9 not in node.image.brokers


def test_a_negative_id_is_none() -> None:
    assert ControllerNode(brokers=1).register(-1, incarnation=5).error_code == ErrorCode.INVALID_REGISTRATION


def test_another_process_with_the_id_of_one_that_lives_is_refused_until_its_session_is_over() -> None:
    node = ControllerNode()
    assert node.register(1, incarnation=77).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    node.runtime.now += SESSION_S
    answer = node.register(1, incarnation=77)
    assert answer.error_code == 0
    assert node.image.brokers[1].epoch == answer.broker_epoch
    assert node.beat(1, broker_epoch=answer.broker_epoch - 1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_the_same_process_that_asks_again_keeps_its_epoch() -> None:
    node = ControllerNode()
    epoch = node.image.brokers[2].epoch
    assert node.register(2).broker_epoch == epoch
    assert node.image.brokers[2].is_active


def test_a_broker_of_this_very_process_need_not_wait_for_its_former_session() -> None:
    node = ControllerNode(brokers=0)
    node.directory_id = uuid.UUID(int=1000 + node.node_id)
    node.join(node.node_id)
    assert node.register(node.node_id, incarnation=77).error_code == 0


@pytest.mark.parametrize(("is_clean", "eligible"), [(True, [2]), (False, [])])
def test_who_did_not_shut_down_cleanly_is_no_eligible_leader(is_clean: bool, eligible: list[int]) -> None:
    node = ControllerNode()
    node.create("a", [1, 2], min_insync_replicas="2")
    assert node.alter("a", [1]).topics[0].partitions[0].isr == [1]
    assert node.partition_of("a").eligible_leader_replicas == [2]
    epoch = node.image.brokers[2].epoch
    node.runtime.now += SESSION_S
    assert node.register(2, incarnation=77, previous_broker_epoch=epoch if is_clean else -1).error_code == 0
    assert node.partition_of("a").eligible_leader_replicas == eligible


# Heartbeats


def test_a_broker_is_unfenced_when_it_has_read_its_registration() -> None:
    node = ControllerNode(brokers=0)
    epoch = node.register(1).broker_epoch
    answer = node.beat(1, current_metadata_offset=epoch - 1)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    assert node.beat(1, want_fence=True).is_fenced
    answer = node.beat(1)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)


def test_without_heartbeats_a_broker_is_fenced_and_others_lead() -> None:
    node = ControllerNode()
    node.create("a", [1, 2, 3], [2, 3, 1], min_insync_replicas="2")
    node.runtime.now += SESSION_S - 1
    node.beat(2)
    node.beat(3)
    node.work_off()
    assert node.partition_of("a").leader == 1
    node.runtime.now += 1
    node.work_off()
    assert node.image.brokers[1].registration.fenced
    first, second = node.image.topics["a"].partitions
    assert (first.leader, first.isr, first.leader_epoch) == (2, [2, 3], 1)
    assert (second.leader, second.isr, second.leader_epoch) == (2, [2, 3], 0), "a smaller set, and the same leader"


def test_the_oldest_session_ends_first() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    node.runtime.now += 0.5
    node.beat(1)
    node.runtime.now += SESSION_S - 0.2
    node.work_off()
    assert [each.registration.fenced for each in node.image.brokers.values()] == [False, True, True]
    assert node.partition_of("a").isr == [1]


def test_a_new_controller_gives_everybody_a_fresh_session() -> None:
    node = ControllerNode()
    node.runtime.now += SESSION_S
    node.controller.activate(node.image, node.runtime.monotonic())
    node.work_off()
    assert all(broker.is_active for broker in node.image.brokers.values())


def test_time_in_which_the_controller_stood_still_is_not_held_against_brokers() -> None:
    node = ControllerNode()
    node.runtime.now += 60
    node.work_off()
    assert all(broker.is_active for broker in node.image.brokers.values())
    node.beat(1)
    node.runtime.now += 1.0
    node.work_off()
    assert [broker.is_active for broker in node.image.brokers.values()] == [True, False, False]


def test_leaders_are_moved_before_a_broker_may_go() -> None:
    node = ControllerNode()
    node.create("a", [1, 2], [2, 1])
    answer = node.beat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert [each.leader for each in node.image.topics["a"].partitions] == [2, 2]
    assert node.image.brokers[1].registration.in_controlled_shutdown
    # Others may still believe that it leads: it waits until they have said how far they have read.
    assert not node.beat(1, want_shut_down=True).should_shut_down
    node.beat(2)
    assert not node.beat(1, want_shut_down=True).should_shut_down
    node.beat(3)
    answer = node.beat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)


def test_the_only_replica_may_go_too_and_leads_again_when_it_is_back() -> None:
    node = ControllerNode(brokers=1)
    node.create("a", [1])
    while not node.beat(1, want_shut_down=True).should_shut_down:
        pass
    assert (node.partition_of("a").leader, node.partition_of("a").eligible_leader_replicas) == (-1, [1])
    epoch = node.image.brokers[1].epoch
    assert node.register(1, incarnation=77, previous_broker_epoch=epoch).error_code == 0
    node.beat(1)
    partition = node.partition_of("a")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, [1], 0)


def test_the_last_known_leader_leads_again_when_all_others_may_have_lost_something() -> None:
    node = ControllerNode(brokers=1)
    node.create("a", [1])
    node.runtime.now += SESSION_S
    assert node.register(1, incarnation=77).error_code == 0
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [1])
    node.beat(1)
    partition = node.partition_of("a")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, [1], 1), "marked as unclean"
    assert not partition.last_known_elr


def stop_cleanly(node: ControllerNode, broker_id: int) -> None:
    answer = node.beat(broker_id, want_shut_down=True)
    while not answer.should_shut_down:
        for other in node.image.active_brokers():
            node.beat(other.id)
        answer = node.beat(broker_id, want_shut_down=True)


MINIMA = {
    "raised": (RESOURCE_TOPIC, "a", "3"),
    "lowered": (RESOURCE_TOPIC, "a", "1"),
    "the topic's default": (RESOURCE_TOPIC, "a", None),
    "the value in force": (RESOURCE_TOPIC, "a", "2"),
    "the default of all topics": (RESOURCE_BROKER, "", "3"),
    "of one broker": (RESOURCE_BROKER, "1", "3"),
}


@pytest.mark.parametrize("how", MINIMA)
def test_a_partition_without_a_member_in_sync_has_a_leader_again_whatever_the_minimum(how: str) -> None:
    """Three clean stops, a change of the settings, three clean returns."""
    node = ControllerNode()
    node.create("a", [1, 2, 3], min_insync_replicas="2")
    for broker_id in (1, 2, 3):
        stop_cleanly(node, broker_id)
    left = node.partition_of("a")
    assert (left.leader, left.isr) == (-1, [])
    assert left.eligible_leader_replicas
    kind, name, value = MINIMA[how]
    operation = ConfigOperation("min.insync.replicas", value, AlterOperation.SET if value else AlterOperation.DELETE)
    for records, _ in node.controller.decide_configs([ConfigAlteration(kind, name, [operation])], node_id=None):
        node.controller_write(records, lambda error: None)
    node.flush()
    assert node.partition_of("a") == left, "who holds the records has not changed"
    for broker_id in (1, 2, 3):
        epoch = node.image.brokers[broker_id].epoch
        assert node.register(broker_id, incarnation=70 + broker_id, previous_broker_epoch=epoch).error_code == 0
        node.beat(broker_id)
    back = node.partition_of("a")
    assert back.leader in left.eligible_leader_replicas
    assert back.leader_recovery_state == 0, "elected cleanly"


def test_eligible_leaders_are_not_forgotten_with_their_feature_while_they_are_needed() -> None:
    node = ControllerNode()
    node.create("a", [1])
    downgrade = [FeatureUpdate(ELIGIBLE_LEADER_REPLICAS, 0, SAFE_DOWNGRADE)]
    stop_cleanly(node, 1)
    with pytest.raises(RequestError, match="Partition a-0 has no in-sync replica") as refusal:
        node.controller.update_features(downgrade)
    assert refusal.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert node.register(1, incarnation=71, previous_broker_epoch=node.image.brokers[1].epoch).error_code == 0
    node.beat(1)
    assert len(node.controller.update_features(downgrade)) == 2


def test_leaderships_leave_an_offline_directory_where_another_replica_can_lead() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    node.create("alone", [1])
    node.beat(1, offline_log_dirs=[uuid.UUID(int=1001)])
    assert (node.partition_of("a").leader, node.partition_of("a").isr) == (2, [2])
    assert node.partition_of("alone").leader == 1, "of a full disk one can still read"


def test_a_directory_that_is_back_may_hold_what_a_leaderless_partition_waits_for() -> None:
    node = ControllerNode()
    node.create("a", [1, 2], min_insync_replicas="2")
    directory = uuid.UUID(int=1002)
    node.beat(2, offline_log_dirs=[directory])
    assert (node.partition_of("a").leader, node.partition_of("a").eligible_leader_replicas) == (1, [2])
    node.runtime.now += SESSION_S
    node.beat(2, offline_log_dirs=[directory])
    assert node.register(1, incarnation=77).error_code == 0
    assert (node.partition_of("a").leader, node.partition_of("a").eligible_leader_replicas) == (-1, [2])
    node.beat(2)
    assert (node.partition_of("a").leader, node.partition_of("a").isr) == (2, [2])


def test_cordoned_directories_take_no_new_replicas() -> None:
    node = ControllerNode()
    node.beat(1, cordoned_log_dirs=[uuid.UUID(int=1001)])
    records, (created,) = node.controller.create_topics([NewTopic("a", 6, 2)])
    assert not isinstance(created, RequestError)
    assert {broker_id for record in records[1:] for broker_id in getattr(record, "replicas", [])} == {2, 3}


def test_strangers_are_told_that_they_are_not_registered() -> None:
    node = ControllerNode()
    assert node.beat(44).error_code == ErrorCode.STALE_BROKER_EPOCH
    request = AllocateProducerIdsRequest(44, 1)
    answer = ask(k67_allocate_producer_ids, node, request, 0, AllocateProducerIdsResponse)
    assert (answer.error_code, answer.producer_id_len) == (ErrorCode.STALE_BROKER_EPOCH, 0)


# In-sync sets


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_changes_its_in_sync_set(version: int) -> None:
    node = ControllerNode()
    node.create("a", [1, 2, 3])
    (partition,) = node.alter("a", [1, 3], version=version).topics[0].partitions
    assert (partition.error_code, partition.isr, partition.leader_epoch, partition.partition_epoch) == (0, [1, 3], 0, 1)
    assert node.partition_of("a").isr == [1, 3]


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1, 2], {"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([2], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader": 2}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"partition_index": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"new_isr_with_epochs": [BrokerState(1, -1), BrokerState(2, 0)]}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_proposals_that_are_refused(isr: list[int], changes: dict[str, Any], code: ErrorCode) -> None:
    node = ControllerNode(brokers=4)
    node.create("a", [2, 1, 3])
    # Broker 1 leads in the second epoch.
    assert node.alter("a", [2, 1], leader=2).error_code == 0
    node.beat(2, want_fence=True)
    node.beat(2)
    assert (node.partition_of("a").leader, node.partition_of("a").leader_epoch) == (1, 1)
    before = node.partition_of("a")
    (partition,) = node.alter("a", isr, **changes).topics[0].partitions
    assert partition.error_code == code
    assert node.partition_of("a") == before


def test_a_leader_of_a_former_life_is_refused_as_a_whole() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    answer = node.alter("a", [1], broker_epoch=1)
    assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_a_deleted_topic_of_the_same_name_is_another() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    old = node.image.topics["a"]
    node.controller_write(node.controller.delete_topics([TopicRef("a")])[0], lambda error: None)
    node.flush()
    node.create("a", [1, 2])
    request = AlterPartitionRequest(
        1, node.image.brokers[1].epoch, [TopicData(old.id, [PartitionData(new_isr_with_epochs=[BrokerState(1)])])]
    )
    answer = ask(k56_alter_partition, node, request, 3, AlterPartitionResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_controller_that_lost_its_lead_says_so_for_the_whole_request() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    node.controller.deactivate()
    assert node.alter("a", [1]).error_code == ErrorCode.NOT_CONTROLLER
    assert node.beat(1).error_code == ErrorCode.NOT_CONTROLLER
    assert node.register(1).error_code == ErrorCode.NOT_CONTROLLER
    assert (
        ask(k64_unregister_broker, node, UnregisterBrokerRequest(1), 0, UnregisterBrokerResponse).error_code
        == ErrorCode.NOT_CONTROLLER
    )
    (outcome,) = node.controller.create_topics([NewTopic("b")])[1]
    assert isinstance(outcome, RequestError)
    assert outcome.code == ErrorCode.NOT_CONTROLLER


# Directories


def assign(node: ControllerNode, broker_id: int, directory: int, *, topic_id: Any = None, index: int = 0) -> Any:
    topic = TopicAssigned(topic_id or node.image.topics["a"].id, [PartitionAssigned(index)])
    request = AssignReplicasToDirsRequest(
        broker_id, node.image.brokers[broker_id].epoch, [DirectoryAssigned(uuid.UUID(int=directory), [topic])]
    )
    return ask(k73_assign_replicas_to_dirs, node, request, 0, AssignReplicasToDirsResponse)


def replace_disk(node: ControllerNode, broker_id: int) -> int:
    """The broker comes back with an empty directory, and is unfenced; return the id of the directory."""
    node.runtime.now += SESSION_S
    for other in node.image.active_brokers():
        if other.id != broker_id:
            node.beat(other.id)
    directory = uuid.UUID(int=2000 + broker_id)
    assert node.register(broker_id, incarnation=90 + broker_id, log_dirs=[directory]).error_code == 0
    assert not node.beat(broker_id).is_fenced
    return directory.int


def test_a_broker_with_a_new_disk_leads_again_once_it_has_said_where_its_replicas_are() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    directory = replace_disk(node, 1)
    assert node.alter("a", [2, 1]).error_code == 0
    answer = assign(node, 1, directory)
    (assigned,) = answer.directories
    assert (answer.error_code, assigned.id.int) == (0, directory)
    assert assigned.topics[0].topic_id == node.image.topics["a"].id
    assert [(each.partition_index, each.error_code) for each in assigned.topics[0].partitions] == [(0, 0)]
    assert [each.int for each in node.partition_of("a").directories] == [directory, 1002]
    node.runtime.now += SESSION_S
    node.beat(1)
    node.work_off()
    assert (node.partition_of("a").leader, node.partition_of("a").isr) == (1, [1]), "the other one died"
    written = len(node.log)
    assert assign(node, 1, directory).error_code == 0
    assert len(node.log) == written, "nothing is written that is so already"


def test_an_eligible_leader_leads_as_soon_as_its_new_directory_is_known() -> None:
    """Its disk was replaced and filled, and both replicas left the in-sync set before it said where its replica is."""
    node = ControllerNode()
    node.create("a", [1, 2], min_insync_replicas="2")
    directory = replace_disk(node, 1)
    assert node.alter("a", [2, 1]).error_code == 0
    node.beat(1, want_fence=True)
    # Broker 2 ends without a clean stop, so it is not eligible any more.
    replace_disk(node, 2)
    node.beat(1)
    waiting = node.partition_of("a")
    assert (waiting.leader, waiting.isr, waiting.eligible_leader_replicas) == (-1, [], [1])
    assign(node, 1, directory)
    assert (node.partition_of("a").leader, node.partition_of("a").isr) == (1, [1])


def test_a_partition_that_waits_for_a_leader_has_one_as_soon_as_the_directory_is_known() -> None:
    node = ControllerNode()
    node.create("a", [1], unclean_leader_election_enable="true")
    directory = replace_disk(node, 1)
    assert node.partition_of("a").leader == -1
    assign(node, 1, directory)
    assert (node.partition_of("a").leader, node.partition_of("a").leader_recovery_state) == (1, 1)


def test_a_last_known_leader_with_a_new_disk_does_not_lead_unless_it_is_asked_for() -> None:
    """It is empty: to have it lead would have every other replica cut what it holds."""
    node = ControllerNode()
    node.create("a", [1, 2])
    stop_cleanly(node, 1)
    assert node.alter("a", [2]).error_code == 0, "from here on the leader commits alone"
    node.runtime.now += SESSION_S
    node.work_off()
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [2])
    directory = replace_disk(node, 2)
    assert node.register(1, incarnation=77).error_code == 0, "and the other one was killed"
    assign(node, 2, directory)
    node.work_off()
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [])
    for records, (_, _, refusal) in node.controller.elections.decide(ELECT_UNCLEAN, [("a", [0])]):
        assert refusal is None
        node.controller_write(records, lambda error: None)
    node.flush()
    assert node.partition_of("a").leader == 2


@pytest.mark.parametrize("is_killed_first", [True, False])
def test_a_killed_eligible_leader_leads_when_the_last_known_leader_has_a_new_disk(is_killed_first: bool) -> None:
    """Broker 1 held all that was committed, and nothing was since. To wait for the lost disk would be for good."""
    node = ControllerNode()
    node.create("a", [2, 1, 3], min_insync_replicas="2")
    assert node.alter("a", [2, 1]).error_code == 0, "3 is behind"
    stop_cleanly(node, 1)
    node.runtime.now += SESSION_S
    node.beat(3)
    node.work_off()
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [2])
    if is_killed_first:
        assert node.register(1, incarnation=77).error_code == 0
        directory = replace_disk(node, 2)
        assert node.partition_of("a").last_known_elr == [2, 1]
        assign(node, 2, directory)
    else:
        assign(node, 2, replace_disk(node, 2))
        assert node.register(1, incarnation=77).error_code == 0
    waiting = node.partition_of("a")
    assert (waiting.leader, waiting.eligible_leader_replicas, waiting.last_known_elr) == (-1, [], [1])
    node.beat(1)
    partition = node.partition_of("a")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, [1], 1), "marked as unclean"
    assert not partition.last_known_elr


def test_the_last_known_leader_is_waited_for_while_it_may_come_back_with_its_disk() -> None:
    """It may hold more than the eligible leaders: what it had appended, and was not committed."""
    node = ControllerNode()
    node.create("a", [2, 1], min_insync_replicas="2")
    stop_cleanly(node, 1)
    node.runtime.now += SESSION_S
    node.work_off()
    assert node.register(2, incarnation=78).error_code == 0
    assert node.register(1, incarnation=77).error_code == 0
    node.beat(1)
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [2, 1])
    node.beat(2)
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (2, [])


def test_a_replica_that_was_killed_under_a_leader_is_no_last_known_leader() -> None:
    """The leader may have committed records without it."""
    node = ControllerNode()
    node.create("a", [2, 1], min_insync_replicas="2")
    stop_cleanly(node, 1)
    assert node.register(1, incarnation=77).error_code == 0
    assert (node.partition_of("a").leader, node.partition_of("a").eligible_leader_replicas) == (2, [])
    node.runtime.now += SESSION_S
    node.work_off()
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [2])
    assign(node, 2, replace_disk(node, 2))
    node.beat(1)
    assert (node.partition_of("a").leader, node.partition_of("a").last_known_elr) == (-1, [])


def test_assignments_that_are_refused() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])

    def code(answer: Any) -> int:
        return int(answer.directories[0].topics[0].partitions[0].error_code)

    assert code(assign(node, 3, 1003)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(assign(node, 1, 1001, index=1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(assign(node, 1, 1001, topic_id=uuid.UUID(int=7777))) == ErrorCode.UNKNOWN_TOPIC_ID
    before = node.partition_of("a")
    late = AssignReplicasToDirsRequest(
        1,
        node.image.brokers[1].epoch - 1,
        [DirectoryAssigned(uuid.UUID(int=5), [TopicAssigned(node.image.topics["a"].id, [PartitionAssigned(0)])])],
    )
    answer = ask(k73_assign_replicas_to_dirs, node, late, 0, AssignReplicasToDirsResponse)
    assert (answer.error_code, answer.directories) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert node.partition_of("a") == before
    node.controller.deactivate()
    assert assign(node, 1, 1001).error_code == ErrorCode.NOT_CONTROLLER


# Elections


def elect(node: ControllerNode, kind: int, asked: dict[str, list[int]] | None, version: int = 2) -> Any:
    partitions = None if asked is None else [TopicPartitions(name, indexes) for name, indexes in asked.items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=partitions)
    answer = ask(k43_elect_leaders, node, request, version, ElectLeadersResponse)
    return answer.error_code, {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_preferred_leaders_are_elected(version: int) -> None:
    node = ControllerNode()
    node.create("a", [1, 2], [2, 1], [3, 1])
    node.beat(1, want_fence=True)
    node.beat(1)
    node.create("b", [1, 2])
    assert node.partition_of("a").leader == 2
    asked = {"a": [0, 1, 9], "b": [0], "c": [0]}
    assert elect(node, 0, asked, version)[1] == {
        ("a", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("c", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert node.alter("a", [2, 1]).error_code == 0
    assert elect(node, 0, None, version) == (0, {("a", 0): 0})
    assert node.partition_of("a").leader == 1


@pytest.mark.parametrize("version", [1, 2])
def test_an_unclean_leader_is_elected_only_where_there_is_no_leader(version: int) -> None:
    node = ControllerNode()
    node.create("a", [1, 2], [2, 1])
    assert node.alter("a", [1]).error_code == 0
    node.beat(1, want_fence=True)
    assert node.partition_of("a").leader == -1
    assert elect(node, 1, {"a": [0, 1]}, version)[1] == {("a", 0): 0, ("a", 1): ErrorCode.ELECTION_NOT_NEEDED}
    partition = node.partition_of("a")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, [2], 1)
    assert elect(node, 5, {"a": [0]}, version) == (ErrorCode.INVALID_REQUEST, {("a", 0): ErrorCode.INVALID_REQUEST})


def test_an_unclean_leader_is_found_as_soon_as_the_topic_allows_it() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    assert node.alter("a", [1]).error_code == 0
    node.beat(1, want_fence=True)
    node.work_off()
    assert node.partition_of("a").leader == -1
    asked = ConfigAlteration(2, "a", [ConfigOperation("unclean.leader.election.enable", "true")])
    ((records, refusal),) = node.controller.decide_configs([asked], node_id=None)
    assert refusal is None
    node.controller_write(records, lambda error: None)
    node.flush()
    node.work_off()
    assert node.partition_of("a").leader == 2


def test_preferred_leaders_get_their_leaderships_back_by_themselves() -> None:
    node = ControllerNode(leader_imbalance_check_interval_seconds="5")
    node.create("a", [1, 2])
    node.beat(1, want_fence=True)
    node.beat(1)
    assert node.alter("a", [2, 1]).error_code == 0
    node.runtime.now += 4
    for broker_id in (1, 2, 3):
        node.beat(broker_id)
    node.work_off()
    assert node.partition_of("a").leader == 2
    node.runtime.now += 1
    node.work_off()
    assert node.partition_of("a").leader == 1


# Reassignment


def reassign(node: ControllerNode, replicas: list[int] | None, index: int = 0, *, version: int = 1, **more: Any) -> int:
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("a", [ReassignablePartition(index, replicas)])], **more
    )
    answer = ask(k45_alter_partition_reassignments, node, request, version, AlterPartitionReassignmentsResponse)
    code: int = answer.responses[0].partitions[0].error_code
    return code


def ongoing(node: ControllerNode) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    answer = ask(
        k46_list_partition_reassignments,
        node,
        ListPartitionReassignmentsRequest(topics=None),
        0,
        ListPartitionReassignmentsResponse,
    )
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_moves_when_its_new_replicas_are_in_sync(version: int) -> None:
    node = ControllerNode(brokers=4)
    node.create("a", [1, 2])
    assert reassign(node, [3, 4], version=version) == 0
    assert ongoing(node) == [("a", 0, [3, 4, 1, 2], [3, 4], [1, 2])]
    assert node.alter("a", [1, 2, 3]).topics[0].partitions[0].error_code == 0
    # The leader is among those that go: it is told so, although its proposal was taken.
    assert node.alter("a", [1, 2, 3, 4]).topics[0].partitions[0].error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = node.partition_of("a")
    assert (partition.replicas, partition.isr, partition.leader) == ([3, 4], [3, 4], 3)
    assert partition.directories == [uuid.UUID(int=1003), uuid.UUID(int=1004)]
    assert ongoing(node) == []


def test_a_new_order_of_the_same_replicas_is_there_at_once() -> None:
    node = ControllerNode()
    node.create("a", [1, 2, 3])
    assert reassign(node, [3, 2, 1]) == 0
    partition = node.partition_of("a")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ([3, 2, 1], 1, 0)


def test_a_replica_that_is_removed_raises_the_leader_epoch() -> None:
    node = ControllerNode()
    node.create("a", [1, 2, 3])
    assert reassign(node, [1, 2]) == 0
    partition = node.partition_of("a")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ([1, 2], [1, 2], 1, 1)


def test_cancelling_goes_back_to_before_the_first_reassignment() -> None:
    node = ControllerNode(brokers=4)
    node.create("a", [1, 2])
    assert reassign(node, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(node, [3, 2]) == 0
    assert reassign(node, [4, 1]) == 0
    assert reassign(node, None) == 0
    partition = node.partition_of("a")
    assert (sorted(partition.replicas), partition.adding_replicas, partition.removing_replicas) == ([1, 2], [], [])


@pytest.mark.parametrize(
    ("replicas", "index", "code"),
    [
        ([], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments_that_are_refused(replicas: list[int], index: int, code: ErrorCode) -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    assert reassign(node, replicas, index) == code


def test_a_replication_factor_may_be_held() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    held = {"allow_replication_factor_change": False}
    assert reassign(node, [1, 2, 3], **held) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(node, [1, 3], **held) == 0


# The rest


def test_an_unregistered_broker_leaves_every_in_sync_set() -> None:
    node = ControllerNode()
    node.create("a", [1, 2])
    request = UnregisterBrokerRequest(1)
    answer = ask(k64_unregister_broker, node, request, 0, UnregisterBrokerResponse)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (node.partition_of("a").leader, node.partition_of("a").isr) == (2, [2])
    assert 1 not in node.image.brokers
    answer = ask(k64_unregister_broker, node, request, 0, UnregisterBrokerResponse)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "Broker ID 1" in answer.error_message


def test_blocks_of_producer_ids_are_given_once() -> None:
    node = ControllerNode()
    request = AllocateProducerIdsRequest(2, node.image.brokers[2].epoch)
    starts = [
        ask(k67_allocate_producer_ids, node, request, 0, AllocateProducerIdsResponse).producer_id_start for _ in "123"
    ]
    assert starts == [0, 1000, 2000]


def test_controllers_are_kept_on_record() -> None:
    node = ControllerNode()
    request = ControllerRegistrationRequest(controller_id=7, incarnation_id=uuid.UUID(int=7))
    answer = ask(k70_controller_registration, node, request, 0, ControllerRegistrationResponse)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert ("controller", 7) in node.image.kept.by_identity


def test_with_three_brokers_topics_get_three_replicas_of_which_two_must_be_in_sync() -> None:
    node = ControllerNode()
    _, (created,) = node.controller.create_topics([NewTopic("a")])
    assert not isinstance(created, RequestError)
    assert (created.replication_factor, created.config_overrides) == (3, {"min.insync.replicas": "2"})
    _, (two,) = node.controller.create_topics([NewTopic("b", 1, 2)])
    assert not isinstance(two, RequestError)
    assert two.config_overrides == {}
    _, (own,) = node.controller.create_topics([NewTopic("c", configs=[("min.insync.replicas", "1")])])
    assert not isinstance(own, RequestError)
    assert own.config_overrides == {"min.insync.replicas": "1"}


def test_what_the_cluster_says_of_in_sync_replicas_is_not_overruled() -> None:
    node = ControllerNode(min_insync_replicas="1")
    _, (created,) = node.controller.create_topics([NewTopic("a")])
    assert not isinstance(created, RequestError)
    assert (created.replication_factor, created.config_overrides) == (3, {})
    assert node.image.configs[4, ""] == {"min.insync.replicas": "1"}, "the metadata has it, so every node agrees"
