"""The administrator of a simulated cluster: changes topics, configs, replicas and leaders while clients work.

It takes no for an answer. What it asks for never takes away what the other clients are promised: a topic without
unclean elections gets none, and one that keeps its records goes on keeping them. `config_changes` has the table of
configs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulator.clients.client import REQUEST_TIMEOUT_S, History, SimClient
from tests.simulator.clients.config_changes import TOPIC, Change
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

from strandline.codec.message import Message
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from strandline.codec.messages.create_partitions_response import CreatePartitionsResponse
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.delete_records_response import DeleteRecordsResponse
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from strandline.codec.messages.elect_leaders_response import ElectLeadersResponse
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

SCRATCH_MAX: Final = 3
TIMEOUT_MS: Final = 4_000
UNCLEAN: Final = 1
REVERT: Final = 1
"""The operation of IncrementalAlterConfigs that takes an override away; 0 sets one."""
REVERT_SHARE: Final = 0.15
CHANGES_AT_ONCE: Final = 4
AGAIN_S: Final = 0.5
TRIM_STEP: Final = 40
"""Records that one request deletes at most, unless it deletes all."""
TRIM_ALL_SHARE: Final = 0.1
LOOK_S: Final = 5.0
"""How often a topic is made again that a late deletion may have taken."""
DELETED: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Answers to a deletion after which it is known to be over."""
ROUTINE: Final = ("create", "delete", "move", "elect")
"""What every administrator does; `SimOptions.users` names what one of a seed does besides."""


class SimAdministrator(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        topic: str,
        *,
        every_s: float,
    ) -> None:
        super().__init__(network, host, history, bootstrap, [topic])
        self.every_s = every_s
        self.asked: Counter[str] = Counter()
        self.duties: list[str] = list(ROUTINE)
        """Names of what is done; one that stands here twice is done twice as often."""
        self.changes: Sequence[Change] = ()
        """Configs that may be changed."""
        self.minima: dict[str, Sequence[str]] = {}
        """By topic: values of min.insync.replicas."""
        self.unclean: Sequence[str] = ()
        """Topics that may be led by a replica that is not in sync."""
        self.recreated: CreatableTopic | None = None
        self.trimmed: TopicPartition | None = None
        """A partition whose records are deleted by request."""
        self._is_looking = False
        self._scratch = self._trim_at = 0
        self._kinds: dict[str, Callable[[], object]] = {
            "create": self._create,
            "delete": self._delete,
            "move": self._move,
            "elect": self._elect,
            "configure": self._configure,
            "minimum": self._set_minimum,
            "recreate": self._recreate,
            "elect uncleanly": self._elect_uncleanly,
            "add partitions": self._add_partitions,
            "resize": self._resize,
            "cancel": self._cancel,
            "trim": self._trim,
        }
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(every_s * self.random.random(), self._work)

    def _work(self) -> None:
        if self.is_stopped:
            return
        self.runtime.call_later(self.every_s * (0.5 + self.random.random()), self._work)
        self.refresh()
        kind = self.random.choice(self.duties)
        self.asked[kind] += 1
        self._kinds[kind]()

    def _ask(self, request: Message, version: int, answer_class: type[Message]) -> None:
        self.ask_any(request, version, answer_class, lambda _: None)

    # Topics

    def _name(self) -> str:
        return f"scratch-{self._scratch % SCRATCH_MAX}"

    def _create(self) -> None:
        self._scratch += 1
        topic = CreatableTopic(name=self._name(), num_partitions=2, replication_factor=-1)
        self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7, CreateTopicsResponse)

    def _delete(self) -> None:
        self._ask(_deletion(self._name()), 6, DeleteTopicsResponse)

    def _add_partitions(self) -> None:
        wanted = CreatePartitionsTopic(name=self._name(), count=self.random.randint(3, 5), assignments=None)
        self._ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), 3, CreatePartitionsResponse)

    def _recreate(self) -> None:
        """Delete a topic that is in use, and create it again at once: its users hardly notice."""
        if self.recreated is not None:
            self.ask_any(_deletion(self.recreated.name), 6, DeleteTopicsResponse, self._on_deleted)

    def _on_deleted(self, answer: DeleteTopicsResponse | None) -> None:
        if answer is not None and answer.responses[0].error_code in DELETED:
            self._bring_back()
        elif not self._is_looking:
            self._is_looking = True
            self._look_after()
        else:
            self._bring_back()

    def _look_after(self) -> None:
        """Make the topic again every now and then, to the end of the run, also when nothing else is administered.

        A deletion whose outcome is unknown may be carried out at any time: a broker that has it begins it when it has
        answered what came before it, though the connection is gone. That the topic exists says nothing till then.
        """
        self._bring_back()
        self.runtime.call_later(LOOK_S, self._look_after)

    def _bring_back(self) -> None:
        assert self.recreated is not None
        request = CreateTopicsRequest(topics=[self.recreated], timeout_ms=TIMEOUT_MS)
        self.ask_any(request, 7, CreateTopicsResponse, self._on_brought_back)

    def _on_brought_back(self, answer: CreateTopicsResponse | None) -> None:
        if answer is None or answer.topics[0].error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.runtime.call_later(AGAIN_S, self._bring_back)

    # Configs

    def _configure(self) -> None:
        """Change several kinds of configs at once, each of one topic, broker or group."""
        kinds = sorted({change.name for change in self.changes})
        for kind in self.random.sample(kinds, min(CHANGES_AT_ONCE, len(kinds))):
            change = self.random.choice([each for each in self.changes if each.name == kind])
            self._set(change.resource_type, change.resource, change.name, self.random.choice(change.values))

    def _set_minimum(self) -> None:
        if self.minima:
            topic = self.random.choice(sorted(self.minima))
            self._set(TOPIC, topic, "min.insync.replicas", self.random.choice(self.minima[topic]))

    def _set(self, resource_type: int, resource: str, name: str, value: str) -> None:
        is_reverted = self.random.random() < REVERT_SHARE
        config = AlterableConfig(name, REVERT, None) if is_reverted else AlterableConfig(name, 0, value)
        request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type, resource, [config])])
        self._ask(request, 1, IncrementalAlterConfigsResponse)

    # Replicas and leaders

    def _move(self) -> None:
        """Other replicas for a partition, or the same in another order."""
        self._reassign(lambda count: count)

    def _resize(self) -> None:
        """More replicas for a partition, or fewer: two at least."""
        self._reassign(lambda count: self.random.randint(min(2, count), len(self.brokers)))

    def _reassign(self, size: Callable[[int], int]) -> None:
        partition, known = self.random.choice(sorted(self.known.items()) or [(None, None)])
        if partition is None or known is None or len(self.brokers) < len(known.replicas):
            return
        replicas = self.random.sample(sorted(self.brokers), size(len(known.replicas)))
        self._ask(_reassignment(partition.topic, partition.partition, replicas), 0, AlterPartitionReassignmentsResponse)

    def _cancel(self) -> None:
        """Stop what is being reassigned of a partition, if anything is."""
        if self.known:
            topic, index = self.random.choice(sorted(self.known))
            self._ask(_reassignment(topic, index, None), 0, AlterPartitionReassignmentsResponse)

    def _trim(self) -> None:
        """Delete what is at the start of a partition, or all that it shows."""
        known = None if self.trimmed is None else self.leader_of(self.trimmed)
        wire = None if known is None else self.wire(known.leader, "trim")
        if self.trimmed is not None and wire is not None:
            self._trim_at += self.random.randint(0, TRIM_STEP)
            offset = -1 if self.random.random() < TRIM_ALL_SHARE else self._trim_at
            asked = DeleteRecordsPartition(partition_index=self.trimmed.partition, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(self.trimmed.topic, [asked])], timeout_ms=TIMEOUT_MS
            )
            wire.ask(request, 2, DeleteRecordsResponse, self._on_trimmed, timeout_s=REQUEST_TIMEOUT_S)

    def _on_trimmed(self, answer: DeleteRecordsResponse | None) -> None:
        if answer is None or answer.topics[0].partitions[0].error_code:
            self.refresh_later()
        else:
            self._trim_at = max(self._trim_at, answer.topics[0].partitions[0].low_watermark)

    def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        self._ask(request, 2, ElectLeadersResponse)

    def _elect_uncleanly(self) -> None:
        if self.unclean:
            wanted = [TopicPartitions(topic=topic, partitions=[0]) for topic in self.unclean]
            request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
            self._ask(request, 2, ElectLeadersResponse)


def _deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)


def _reassignment(topic: str, index: int, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    wanted = ReassignableTopic(name=topic, partitions=[ReassignablePartition(index, replicas)])
    return AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[wanted])
