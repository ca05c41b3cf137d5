"""`strandline storage restore`: builds a cluster from the checkpoints that a lost one left in its object store.

The new cluster runs, has no topics of those names, and is set to the same store. With the id of the lost cluster it
goes on in its place. With another id its nodes have `strandline.remote.store.read.only=true`, and it only reads.

The order is: the records of the segments, those of the commit log of object topics, then the topics, then the list of
checkpoints that do not count any more. A topic that was restored already is left as it is, so the command goes on after
a kill.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect
from strandline.cli.common.conversation import own_client
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    DryRun,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.common.progress import Progress
from strandline.cli.config.access import any_broker, read_entries, value_of
from strandline.cli.storage.access import (
    StoreAddress,
    StoreOptions,
    StoreUrl,
    cluster_id_of,
    read_metadata,
    store_address,
    with_store,
    write_events,
)
from strandline.cli.storage.object_restore import ObjectRestore
from strandline.cli.topic.create import wait_usable
from strandline.config import remote_origin
from strandline.config.remote_origin import RemoteOrigin
from strandline.errors import CorruptLog
from strandline.lag.verdict import span
from strandline.tiers.metadata_fold import Key
from strandline.tiers.objects import key_of, unpack_parts
from strandline.tiers.records import (
    METADATA_TOPIC,
    MetadataEvent,
    SharedObjects,
    TieredPartition,
    metadata_partition,
)
from strandline.tiers.restoring import RestoredPartition, damages_of, lineage_of, restore_events, restored
from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing
from strandline.tiers.store.promises import claim
from strandline.tiers.tier_checkpoint import (
    PartitionCheckpoint,
    TierCheckpoint,
    TopicDefinition,
    checkpoint_key,
    checkpoint_prefix,
    decode_checkpoint,
    decode_superseded,
    encode_superseded,
    newest_of,
)
from strandline.tiers.wal.events import COMMIT_TOPIC, commit_topic_settings
from strandline.tiers.wal.log_restore import state_of

if TYPE_CHECKING:
    from strandline.client.cluster_client import ClusterClient
    from strandline.runtime.runtime import LoopRuntime
    from strandline.tiers.store.interface import ObjectStore, StoredObject

READ_S: Final = 120.0
ALIVE_INTERVALS: Final = 3
ALIVE_MS_MIN: Final = 10_000
SUPERSEDED: Final = "superseded"
READ_ONLY: Final = "strandline.remote.store.read.only"
_TIERED: Final = "remote.storage.enable"
_STORAGE: Final = "strandline.storage"
_OBJECT_ACK: Final = "strandline.object.ack"
_COMMITS_REPLICAS: Final = "strandline.object.commits.replication.factor"
_NOT_KEPT: Final = (remote_origin.SETTING, "strandline.remote.recall", "remote.log.delete.on.disable")
_METADATA_PARTITIONS: Final = "rlmm.config.remote.log.metadata.topic.num.partitions"
_METADATA_REPLICAS: Final = "rlmm.config.remote.log.metadata.topic.replication.factor"


def restore(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Only these topics. Default: all.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if the old cluster may still run, by the age of its last checkpoint."),
    ] = False,
    store: StoreUrl = None,
    store_options: StoreOptions = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Build a cluster from the object store of a lost one, up to its last checkpoints.

    Says for each partition what may be missing: up to where the store has it, and how far it was known to go. Tiered
    and object topics come back with their offsets; others are created empty.
    """
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    address = store_address(cluster, admin, store, store_options)
    with own_client(cluster, "cannot restore") as client:
        restoring = _Restoring(cluster, admin, client, address, set(topics or ()), output, force=force)
        with_store(address, restoring.find)
        plan = restoring.plan()
        if dry_run:
            for line in plan:
                output.talk(line)
        else:
            confirm(output, plan, yes=yes, question="Restore?", undone="nothing was restored")
            restoring.write()
            with_store(address, restoring.supersede)
        restoring.report(dry_run=dry_run)
    output.flush()


@dataclass
class _Restoring:
    """One restore, and what it found."""

    cluster: Cluster
    admin: Any
    client: ClusterClient
    address: StoreAddress
    chosen: set[str]
    output: Output
    force: bool
    cluster_id: str = ""
    owner: str = ""
    now_ms: int = 0
    checkpoints: dict[str, TierCheckpoint] = field(default_factory=dict)
    topics: list[TopicDefinition] = field(default_factory=list)
    partitions: dict[str, list[RestoredPartition]] = field(default_factory=dict)
    objects: ObjectRestore | None = None
    """What there is of object topics; None if there are none."""

    @property
    def is_read_only(self) -> bool:
        return self.owner != self.cluster_id

    # Reading

    async def find(self, store: ObjectStore, runtime: LoopRuntime) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self.cluster_id = cluster_id_of(self.client)
        self.owner = (await claim(store, self.cluster_id, runtime=runtime, is_read_only=True)).cluster_id
        self._check_mode()
        await self._read_checkpoints(store)
        self._check_alive(store)
        topics, states = newest_of(self.checkpoints.values())
        unknown = self.chosen - {topic.name for topic in topics}
        if unknown:
            raise CommandFailed(
                f"the last checkpoints in {store.name} have no topic {min(unknown)!r}",
                hint="they have " + (", ".join(sorted(topic.name for topic in topics)) or "none"),
            )
        self.topics = [topic for topic in topics if not self.chosen or topic.name in self.chosen]
        listed = {each.key: each async for each in store.list(f"{self.owner}/seg")}
        wanted = {topic.id for topic in self.topics if _is_tiered(topic) and not _is_object(topic)}
        with Progress("reading segments", total=len(states) or None, unit="partitions") as progress:
            for state in states:
                if state.place.topic_id in wanted:
                    found = await self._restored(store, state, listed)
                    self.partitions.setdefault(state.place.topic, []).append(found)
                progress.advance(1)
        if any(_is_object(topic) for topic in self.topics):
            await self._find_objects(store, {state.place.key: state for state in states}, listed)

    async def _find_objects(
        self, store: ObjectStore, states: dict[Key, PartitionCheckpoint], listed: dict[str, StoredObject]
    ) -> None:
        objects = self.objects = ObjectRestore(self.owner, self.output.talk)
        await objects.find(store)
        for topic in filter(_is_object, self.topics):
            for index in range(topic.partitions):
                place = TieredPartition(topic.id, index, topic.name)
                state, known = states.get(place.key), objects.known(place.key)
                if state is not None or known is not None:
                    found = await self._restored(store, state_of(place, state, known), listed)
                    self.partitions.setdefault(topic.name, []).append(objects.add(found))

    def _check_mode(self) -> None:
        entries = read_entries(self.cluster, self.admin, any_broker(self.cluster)) or {}
        is_set = value_of(entries, READ_ONLY) == "true"
        if self.is_read_only and not is_set:
            raise CommandFailed(
                f"{self.address.url} belongs to the cluster {self.owner}, and this is {self.cluster_id}",
                hint=f"to go on in its place, format new nodes with `strandline format --cluster-id {self.owner}`; to "
                f"read it beside its cluster, start the nodes with -X {READ_ONLY}=true",
            )

    async def _read_checkpoints(self, store: ObjectStore) -> None:
        """Take the sound checkpoints of each node, but those that an earlier restore has used up.

        Also the one before the newest: it has partitions of which another node has just become the leader.
        """
        prefix, superseded = checkpoint_prefix(self.owner), set[str]()
        by_node: dict[str, list[str]] = {}
        async for each in store.list(prefix):
            by_node.setdefault(each.key.rpartition("/")[0], []).append(each.key)
        for key in by_node.pop(f"{prefix}/{SUPERSEDED}", []):
            superseded |= decode_superseded(await store.read_whole(key, deadline_s=READ_S))
        for keys in by_node.values():
            for key in sorted(set(keys) - superseded, reverse=True):
                try:
                    self.checkpoints[key] = decode_checkpoint(await store.read_whole(key, deadline_s=READ_S))
                except (CorruptLog, ObjectMissing) as error:
                    self.output.talk(f"{key} is passed over: {error}")
        if not self.checkpoints:
            raise CommandFailed(
                f"{store.name} has no checkpoint of the cluster {self.owner}, so nothing is known of its topics",
                hint="nodes write one each strandline.remote.checkpoint.interval.ms, if they lead a tiered partition",
            )

    def _check_alive(self, store: ObjectStore) -> None:
        newest = max(self.checkpoints.values(), key=lambda each: each.written_ms)
        age_ms = self.now_ms - newest.written_ms
        if (
            not self.is_read_only
            and not self.force
            and age_ms < max(ALIVE_INTERVALS * newest.interval_ms, ALIVE_MS_MIN)
        ):
            raise CommandFailed(
                f"node {newest.node_id} wrote a checkpoint to {store.name} only {span(max(0, age_ms) / 1000)} ago: the "
                "old cluster may still run, and both would delete what the other needs",
                hint="make sure that all of its nodes are stopped for good, then say --force",
            )

    async def _restored(
        self, store: ObjectStore, state: PartitionCheckpoint, listed: dict[str, StoredObject]
    ) -> RestoredPartition:
        lineage = lineage_of(state)
        damages = list(damages_of(state, lineage, listed, self.owner))
        while lineage:
            key = key_of(self.owner, state.place, lineage[-1])
            try:
                return restored(
                    state, lineage, unpack_parts(await store.read_whole(f"{key}.idx", deadline_s=READ_S)), damages
                )
            except (CorruptLog, ObjectMissing, ObjectDamaged) as error:
                # Without its epochs and producers the log cannot go on behind it.
                damages.append(f"the segment of offset {lineage[-1].start_offset:,} is left out: {error}")
                lineage.pop()
        return restored(state, [], None, damages)

    # Telling

    def _existing(self) -> dict[str, Any]:
        return self.client.topics([topic.name for topic in self.topics])

    def plan(self) -> list[str]:
        existing = self._existing()
        for topic in self.topics:
            if topic.name in existing and existing[topic.name].topic_id != topic.id and _is_tiered(topic):
                raise CommandFailed(
                    f"this cluster has a topic {topic.name!r} of its own, so nothing was restored",
                    hint="restore into a new cluster, or name the topics to restore",
                )
        newest = max(each.written_ms for each in self.checkpoints.values())
        lines = [
            f"the last checkpoint is {span(max(0, self.now_ms - newest) / 1000)} old"
            f"{'; the store is read-only here' if self.is_read_only else ''}"
        ]
        lines += [] if self.objects is None else self.objects.plan(self.now_ms)
        for topic in self.topics:
            if not _is_tiered(topic):
                lines.append(f"{topic.name}: was not tiered, is created empty")
        for each in self._all():
            lines.append(self._words(each))
            lines += [f"{each.state.place}: {damage}" for damage in each.damages]
        return lines

    def _all(self) -> Iterable[RestoredPartition]:
        for name in sorted(self.partitions):
            yield from sorted(self.partitions[name], key=lambda each: each.state.place.partition)

    def _words(self, each: RestoredPartition) -> str:
        start, end, known = each.origin.start_offset, each.origin.end_offset, each.state.end_offset
        is_object = self.objects is not None and each.state.place.key in self.objects.restored
        why = "came after the checkpoint of the commit log" if is_object else "were on the lost disks only"
        lost = f"; {count(each.missing, 'offset')} up to {known:,} {why}" if each.missing > 0 else ""
        return f"{each.state.place}: offsets {start:,} to {end:,} of {count(len(each.segments), 'segment')}{lost}"

    def report(self, *, dry_run: bool) -> None:
        for each in self._all():
            if self.output.as_json:
                self.output.json_line(
                    {
                        "topic": each.state.place.topic,
                        "partition": each.state.place.partition,
                        "from": each.origin.start_offset,
                        "restored_to": each.origin.end_offset,
                        "known_to": each.state.end_offset,
                        "missing": each.missing,
                        "damages": list(each.damages),
                        "dry_run": dry_run,
                    }
                )
            elif not dry_run:
                self.output.line(self._words(each))

    # Writing

    def write(self) -> None:
        existing = self._existing()
        new = [topic for topic in self.topics if topic.name not in existing]
        tiered = [topic for topic in new if _is_tiered(topic)]
        if tiered:
            place_count = self._metadata_partitions()
            events: list[tuple[int, MetadataEvent]] = []
            for topic in tiered:
                for each in self.partitions.get(topic.name, []):
                    place = each.state.place
                    owner = SharedObjects(self.owner, *place.key) if self.is_read_only else None
                    where = metadata_partition(place, place_count)
                    changes = restore_events(each, owner, self.now_ms, is_read_only=self.is_read_only)
                    events += [(where, event) for event in changes]
            write_events(self.cluster, events)
            self._check_recorded(tiered)
        if any(_is_object(topic) for topic in new):
            self._write_commits([topic for topic in new if _is_object(topic)])
        for topic in new:
            self._create(topic)
        wait_usable(self.cluster, self.admin, [topic.name for topic in new])

    def _metadata_partitions(self) -> int:
        """Return how many partitions the metadata topic has. Create it if there is none, as a node would."""
        known = self.client.topic(METADATA_TOPIC)
        if known is not None:
            return len(known.leaders)
        entries = read_entries(self.cluster, self.admin, any_broker(self.cluster)) or {}
        brokers = max(1, self.client.broker_count)
        partitions = int(value_of(entries, _METADATA_PARTITIONS) or 50)
        factor = min(int(value_of(entries, _METADATA_REPLICAS) or 3), brokers)
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "min.insync.replicas": str(min(factor, 2)),
        }
        self._create_topic(METADATA_TOPIC, partitions, factor, settings)
        wait_usable(self.cluster, self.admin, [METADATA_TOPIC])
        return partitions

    def _write_commits(self, topics: list[TopicDefinition]) -> None:
        objects = self.objects
        assert objects is not None
        if self.client.topic(COMMIT_TOPIC) is None:
            entries = read_entries(self.cluster, self.admin, any_broker(self.cluster)) or {}
            factor = min(int(value_of(entries, _COMMITS_REPLICAS) or 3), max(1, self.client.broker_count))
            self._create_topic(COMMIT_TOPIC, 1, factor, commit_topic_settings(factor))
            wait_usable(self.cluster, self.admin, [COMMIT_TOPIC])
        ids = [topic.id for topic in topics]

        async def write(store: ObjectStore, _: LoopRuntime) -> None:
            await objects.write(self.cluster, self.client, store, ids, self.cluster_id, is_complete=not self.chosen)

        with_store(self.address, write)

    def _check_recorded(self, tiered: list[TopicDefinition]) -> None:
        fold = read_metadata(self.client, self.cluster_id).fold
        for topic in tiered:
            for each in self.partitions.get(topic.name, []):
                state = fold.states.get(each.state.place.key)
                known = set() if state is None else {segment.id for segment in state.readable()}
                if not known >= {segment.id for segment in each.segments}:
                    raise CommandFailed(
                        f"{METADATA_TOPIC} does not have all segments of {each.state.place}, so its topic was not made",
                        hint="was one of that id deleted here before? restore into a new cluster",
                    )

    def _create(self, topic: TopicDefinition) -> None:
        settings = {name: value for name, value in topic.configs.items() if name not in _NOT_KEPT}
        if _is_tiered(topic):
            by_index = {each.state.place.partition: each for each in self.partitions.get(topic.name, [])}
            nothing = remote_origin.PartitionOrigin(0, 0)
            origins = [by_index[at].origin if at in by_index else nothing for at in range(topic.partitions)]
            epochs = [each.state.leader_epoch for each in by_index.values()]
            settings[remote_origin.SETTING] = RemoteOrigin(
                topic.id, max(epochs, default=-1) + 1, tuple(origins)
            ).encode()
        factor = min(topic.replication_factor, max(1, self.client.broker_count))
        if int(settings.get("min.insync.replicas", "1")) > factor:
            settings["min.insync.replicas"] = str(factor)
        self._create_topic(topic.name, topic.partitions, factor, settings)

    def _create_topic(self, name: str, partitions: int, factor: int, settings: dict[str, str]) -> None:
        new = admin_api().NewTopic(name, num_partitions=partitions, replication_factor=factor, config=settings)
        with self.cluster.errors(f"cannot create topic {name!r}"):
            limit_s = self.cluster.timeout_s
            self.admin.create_topics([new], operation_timeout=limit_s, request_timeout=limit_s)[name].result()

    async def supersede(self, store: ObjectStore, runtime: LoopRuntime) -> None:
        """Write down which checkpoints do not count any more: the new cluster writes its own."""
        if self.is_read_only or self.chosen:
            return
        nonce = secrets.token_hex(16)
        key = checkpoint_key(f"{checkpoint_prefix(self.owner)}/{SUPERSEDED}", self.now_ms)
        await store.create(key, encode_superseded(self.checkpoints, nonce), nonce=nonce, deadline_s=READ_S)


def _is_tiered(topic: TopicDefinition) -> bool:
    """Return whether the store has segments of a topic."""
    return topic.configs.get(_TIERED) == "true" or topic.configs.get(_STORAGE) == "object"


def _is_object(topic: TopicDefinition) -> bool:
    """Return whether the commit log says what the store has of a topic. With `ack=wal` it is a tiered one."""
    return topic.configs.get(_STORAGE) == "object" and topic.configs.get(_OBJECT_ACK, "object") == "object"
