"""The machines of one run and every client that works with them: set up from the options, one by one or all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from tests.simulator.clients.admin import SimAdministrator
from tests.simulator.clients.client import History, SimClient
from tests.simulator.clients.committer import RecreatedCommitter, SimCommitter
from tests.simulator.clients.config_changes import changes_of, minima_of
from tests.simulator.clients.consumer import SimConsumer
from tests.simulator.clients.group import GroupOptions, SimGroup
from tests.simulator.clients.processors import ProcessorOptions, SimProcessors
from tests.simulator.clients.producer import SimProducer, old_record, plain_record
from tests.simulator.clients.share_group import TASKS, ShareOptions, SimShareGroup, task_record
from tests.simulator.clients.sinks import SimSinks, SinkOptions
from tests.simulator.clients.stalled_reader import SimStalledReader
from tests.simulator.clients.strangers import SimStranger
from tests.simulator.clients.table import SimTableReader, keyed_record
from tests.simulator.clients.transactor import SimTransactors
from tests.simulator.object_users import TRIM
from tests.simulator.options import SimOptions, TableOptions, TopicOptions, TransactorOptions
from tests.simulator.truth.forgotten import Forgotten
from tests.simulator.truth.group_truth import GroupTruth
from tests.simulator.truth.invariants import Invariants
from tests.simulator.truth.object_truth import ObjectTruth
from tests.simulator.truth.record_truth import RecordTruth
from tests.simulator.truth.share_truth import ShareTruth
from tests.simulator.truth.tier_truth import TierTruth
from tests.simulator.truth.transaction_truth import TransactionTruth
from tests.simulator.world.cluster import SimCluster
from tests.simulator.world.loop import SimLoop
from tests.simulator.world.nemesis import Nemesis

from strandline.codec.columns import Record
from strandline.codec.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.config.settings import LONG_MAX
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

SETUP_S: Final = 60.0
TASK_PAUSES: Final = 3
SLOWEST_STORE_S: Final = 60.0
PHOENIX: Final = "phoenix"
"""A topic that is deleted and created again."""
CROWD: Final = "crowd"
"""A topic that producers with invented ids write to."""


class NotAlive(Exception):
    """The cluster did not come back in time."""


def creatable(topic: TopicOptions) -> CreatableTopic:
    """Return a topic as CreateTopics asks for it."""
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replicas,
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )


class Actors:
    """The cluster of a run, the invariants that watch it, and its clients."""

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.loop = SimLoop(options.seed)
        self.cluster = SimCluster(
            self.loop, nodes=options.nodes, controllers=options.controllers, settings=options.settings
        )
        network = self.cluster.network
        network.fragment_share, network.spike_share = options.fragment_share, options.spike_share
        network.window_bytes = options.window_bytes
        network.flip_share = options.users.flip_share
        for node in self.cluster.nodes.values():
            node.disk.cold_share = options.cold_share
        self.invariants = Invariants(self.cluster)
        self.tier_truth = TierTruth(self.cluster, self.invariants)
        self.object_truth = ObjectTruth(self.cluster, self.invariants, self.tier_truth)
        if options.has_tiers:
            self.tier_truth.watch()
        self.nemesis = Nemesis(self.cluster, options.nemesis)
        self.nemesis.on_disk_replaced = self.invariants.on_disk_replaced
        self.history = History(lambda: int(self.loop.now * 1e9))
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.committers: list[SimCommitter] = []
        self.administrator: SimAdministrator | None = None
        self.group_truth = GroupTruth(self.invariants)
        self.transaction_truth = TransactionTruth(self.invariants)
        self.processors = [self.processor_group(each) for each in options.processors]
        self.groups = [*(self.group(group) for group in options.groups), *self.processors]
        is_delayed = any(each.name == TASKS and each.delays for each in options.topics)
        self.share_truth = ShareTruth(self.invariants, TASKS, is_delayed=is_delayed)
        self.share_groups = [self.share_group(each) for each in options.shares]
        self.transactors: list[SimTransactors | SimSinks] = []
        self.table_readers: list[SimTableReader] = []
        self.stalled_readers: list[SimStalledReader] = []
        self.forgotten = Forgotten(self.invariants)
        for topic in options.topics:
            if topic.forgets:
                self.forgotten.watch(topic)

    # Setting up

    def start(self) -> None:
        self.start_nodes()
        self.create_topics()

    def start_nodes(self) -> None:
        self.cluster.start()
        for node in self.cluster.nodes.values():
            if node.failure:
                raise NotAlive(f"{node.name} did not start: {node.failure}")

    def create_topics(self) -> None:
        for topic in (*self.options.topics, *self.options.outputs):
            self.create(topic)
        if self.options.table is not None:
            self.create(self.options.table.topic)

    def create(self, topic: TopicOptions) -> None:
        """Ask until the topic is there and every partition of it has a leader."""
        client = self._client(f"admin-{topic.name}", [topic.name])
        request = CreateTopicsRequest(topics=[creatable(topic)], timeout_ms=5_000)
        told: list[int] = []

        def on_answer(answer: CreateTopicsResponse | None) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT if answer is None else answer.topics[0].error_code
            told.append(code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                client.runtime.call_later(0.3, ask)
            else:
                client.refresh()

        def ask() -> None:
            client.ask_any(request, 7, CreateTopicsResponse, on_answer)

        def is_missing() -> bool:
            led = [client.leader_of(TopicPartition(topic.name, each)) for each in range(topic.partitions)]
            return not all(led)

        client.runtime.call_soon(ask)
        if not self.loop.run_while(is_missing, within_s=SETUP_S):
            raise NotAlive(f"topic {topic.name} could not be made: {[ErrorCode(each).name for each in told[-3:]]}")
        client.kill()

    def _client(self, name: str, topics: list[str]) -> SimClient:
        return SimClient(self.cluster.network, self.cluster.host(name), self.history, self.cluster.bootstrap, topics)

    def partitions(self, topic: TopicOptions) -> list[TopicPartition]:
        return [TopicPartition(topic.name, index) for index in range(topic.partitions)]

    def start_clients(self) -> None:
        for topic in self.options.topics:
            for number in range(2 if topic.name == "orders" else 1):
                self.producers.append(self.producer(topic, f"producer-{topic.name}-{number}"))
            self.consumers.append(self.consumer(topic, f"consumer-{topic.name}", looks_every_s=2.0))
            if topic.name == "orders":
                self.consumers.append(self.consumer(topic, f"rewinder-{topic.name}", rewinds_every_s=15.0))
        self.start_readers()
        orders = self.options.topics[0]
        network, bootstrap = self.cluster.network, self.cluster.bootstrap
        for producer in self.producers[:1]:
            # One of two that write to one topic: the other shows that it is not missed.
            producer.rest_s = self.options.users.rest_s
            if self.options.users.age_ms:
                producer.record_of = partial(old_record, age_ms=self.options.users.age_ms)
        for topic in self.options.topics:
            for producer in self.producers if topic.name == TASKS else ():
                if TASKS in producer.topics:
                    producer.record_of = partial(task_record, is_delayed=topic.delays)
                    # Workers take longer for a record than others do.
                    producer.pause_s *= TASK_PAUSES
        self._invite_strangers()
        self.stalled_readers = [
            SimStalledReader(
                network,
                self.cluster.host(f"stalled-reader-{number}"),
                self.history,
                bootstrap,
                [topic.name for topic in self.options.topics],
                pause_s=3.0,
            )
            for number in range(self.options.users.stalled_readers)
        ]
        self.committers = [
            SimCommitter(
                network,
                self.cluster.host(f"committer-{number}"),
                self.history,
                bootstrap,
                self.partitions(orders)[0],
                pause_s=self.options.commit_pause_s,
            )
            for number in range(2 if self.options.commit_pause_s else 0)
        ]
        if self.options.administer_every_s:
            self.administrator = self._administrator(orders.name)
            if self.options.users.recreates:
                self._use_recreated()
        self.nemesis.clients = lambda: [
            *(client.host.name for client in (*self.producers, *self.consumers)),
            *(host for group in self.groups for host in group.hosts),
            *(host for transactors in self.transactors for host in transactors.hosts),
            *(reader.host.name for reader in self.table_readers),
            *(host for group in self.share_groups for host in group.hosts),
        ]
        for group in self.groups:
            group.start()
        for share_group in self.share_groups:
            share_group.start()
        if self.options.transactors is not None:
            self.transact(self.options.transactors)
        if self.options.sinks is not None:
            self.sink(self.options.sinks)
        if self.options.table is not None:
            self.keep_table(self.options.table)

    def _administrator(self, topic: str) -> SimAdministrator:
        options, host = self.options, self.cluster.host("administrator")
        administrator = SimAdministrator(
            self.cluster.network,
            host,
            self.history,
            self.cluster.bootstrap,
            topic,
            every_s=options.administer_every_s,
        )
        administrator.duties += options.users.duties
        administrator.changes = changes_of(options)
        administrator.minima = minima_of(options)
        trimmed = [each.name for each in options.topics if each.forgets]
        if TRIM in options.users.duties and trimmed:
            administrator.trimmed = TopicPartition(trimmed[0], 0)
            administrator.more_topics = (trimmed[0],)
            self.invariants.trimmed.add(trimmed[0])
        administrator.unclean = [each.name for each in options.topics if each.may_lose]
        return administrator

    def _use_recreated(self) -> None:
        """Start clients of a topic that the administrator deletes and creates again under them."""
        assert self.administrator is not None
        phoenix = dataclasses.replace(self.options.topics[0], name=PHOENIX, partitions=2, may_lose=True)
        self.administrator.recreated = creatable(phoenix)
        self.create(phoenix)
        self.producers.append(self.producer(phoenix, f"producer-{phoenix.name}"))
        for partition in self.partitions(phoenix):
            committer = RecreatedCommitter(
                self.cluster.network,
                self.cluster.host(f"committer-{partition}"),
                self.history,
                self.cluster.bootstrap,
                partition,
                pause_s=0.3,
            )
            committer.topic_id = self._agreed_topic_id
            self.committers.append(committer)

    def _invite_strangers(self) -> None:
        crowd = dataclasses.replace(self.options.topics[0], name=CROWD, partitions=1, may_lose=True)
        if self.options.users.strangers:
            self.create(crowd)
        for number in range(self.options.users.strangers):
            self.producers.append(self.producer(crowd, f"stranger-{number}", SimStranger))

    def _agreed_topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic if the committed metadata and every node that runs have the same one."""
        topic = self.invariants.image.topics.get(name)
        for each in self.cluster.up():
            known = None if each.node is None else each.node.image.topics.get(name)
            if topic is None or known is None or known.id != topic.id:
                return None
        return None if topic is None else topic.id

    def keep_table(self, options: TableOptions) -> None:
        """Writers of a compacted topic, and who reads it while it is cleaned."""
        record_of = partial(keyed_record, keys=options.keys)
        for number in range(options.writers):
            writer = self.producer(options.topic, f"table-writer-{number}")
            writer.record_of = record_of
            self.producers.append(writer)
        for number in range(options.readers):
            self.table_readers.append(
                self.table_reader(options, f"table-reader-{number}", repeats=True, follows_replicas=number % 2 == 1)
            )
        if options.transactors is not None:
            outputs = self.partitions(options.topic)
            self.transact(options.transactors, outputs, name="table-transactor", record_of=record_of)

    def table_reader(
        self, options: TableOptions, name: str, *, repeats: bool, follows_replicas: bool = False
    ) -> SimTableReader:
        reader = SimTableReader(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.partitions(options.topic),
            truth_of=self._records_of,
            repeats=repeats,
            follows_replicas=follows_replicas,
        )
        reader.leads = self._leads
        if options.topic.configs.get("strandline.storage") == "object":
            reader.waits_s = SLOWEST_STORE_S
        return reader

    def _records_of(self, partition: TopicPartition) -> RecordTruth:
        topic = self.invariants.image.topics[partition.topic]
        records = self.invariants.partitions[topic.id.bytes, partition.partition].records
        assert records is not None, "a table is compacted"
        return records

    def start_readers(self) -> None:
        """Add readers of what transactions write, which see nothing that was not committed."""
        for topic in self.options.outputs:
            self.consumers.append(
                self.consumer(topic, f"consumer-{topic.name}", looks_every_s=2.0, committed_only=True)
            )
            self.consumers.append(
                self.consumer(
                    topic,
                    f"rewinder-{topic.name}",
                    rewinds_every_s=15.0,
                    follows_replicas=True,
                    committed_only=True,
                )
            )

    def group(self, options: GroupOptions) -> SimGroup:
        return SimGroup(self.cluster, self.history, self.invariants, self.group_truth, options, leads=self._leads)

    def share_group(self, options: ShareOptions) -> SimShareGroup:
        return SimShareGroup(
            self.cluster,
            self.history,
            self.share_truth,
            TopicPartition(TASKS, 0),
            options,
            leading=self._leading,
            clock_of=self._clock_of,
        )

    def _leading(self, partition: TopicPartition) -> tuple[int, int]:
        """Return leader and leader epoch as the committed metadata says."""
        found = self.invariants.image.topics[partition.topic].partitions[partition.partition]
        return found.leader, found.leader_epoch

    def _clock_of(self, broker: int) -> int:
        runtime = self.cluster.nodes[broker].runtime
        return LONG_MAX if runtime is None else runtime.now_ms()

    def processor_group(self, options: ProcessorOptions) -> SimProcessors:
        stabilities = self.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, options.manners.timeout_s)
        return SimProcessors(
            self.cluster,
            self.history,
            self.invariants,
            self.group_truth,
            self.transaction_truth,
            options,
            leads=self._leads,
        )

    def transact(
        self,
        options: TransactorOptions,
        outputs: list[TopicPartition] | None = None,
        *,
        name: str = "transactor",
        record_of: Callable[[str, int], Record] = plain_record,
    ) -> SimTransactors:
        stabilities = self.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, options.manners.timeout_s)
        transactors = SimTransactors(
            self.cluster,
            self.history,
            self.transaction_truth,
            outputs or [partition for topic in self.options.outputs for partition in self.partitions(topic)],
            count=options.count,
            churn_s=options.churn_s,
            manners=options.manners,
            name=name,
            record_of=record_of,
        )
        transactors.start()
        self.transactors.append(transactors)
        return transactors

    def sink(self, options: SinkOptions) -> SimSinks:
        stabilities = self.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, options.manners.timeout_s)
        outputs = [partition for topic in self.options.outputs for partition in self.partitions(topic)]
        sinks = SimSinks(self.cluster, self.history, self.transaction_truth, outputs, options)
        sinks.start()
        self.transactors.append(sinks)
        return sinks

    def producer(self, topic: TopicOptions, name: str, kind: type[SimProducer] = SimProducer) -> SimProducer:
        producer = kind(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.partitions(topic),
            acks=topic.acks,
            idempotent=topic.idempotent,
            records_per_batch=self.options.records_per_batch,
            pause_s=self.options.produce_pause_s,
            delivery_timeout_s=self.options.delivery_timeout_s,
            loses_are_legal=topic.may_lose,
        )
        producer.leads = self._leads
        users = self.options.users
        producer.flip_share = users.flip_share
        if topic.idempotent:
            producer.burst = users.burst
        return producer

    def _leads(self, partition: TopicPartition, broker: int) -> bool:
        """Whether the committed metadata says so."""
        topic = self.invariants.image.topics.get(partition.topic)
        return topic is not None and topic.partitions[partition.partition].leader == broker

    def consumer(
        self,
        topic: TopicOptions,
        name: str,
        *,
        looks_every_s: float = 0.0,
        rewinds_every_s: float = 0.0,
        follows_replicas: bool = False,
        is_final: bool = False,
        committed_only: bool = False,
    ) -> SimConsumer:
        consumer = SimConsumer(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.partitions(topic),
            looks_every_s=looks_every_s,
            rewinds_every_s=rewinds_every_s,
            follows_replicas=follows_replicas,
            loses_are_legal=topic.may_lose,
            forgets=topic.forgets,
            is_final=is_final,
            committed_only=committed_only,
        )
        consumer.leads = self._leads
        return consumer
