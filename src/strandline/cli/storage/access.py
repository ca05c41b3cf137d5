"""What the storage verbs share: the store of a cluster, the metadata of its tier, and records that they write there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.progress import Progress
from strandline.cli.config.access import any_broker, read_entries
from strandline.client.cluster_client import EARLIEST, LATEST, READ_UNCOMMITTED, ClusterClient
from strandline.client.raw_batches import read_batches
from strandline.codec.columns import records_of
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import MalformedMessage
from strandline.ids import TopicPartition
from strandline.tiers.metadata_fold import Key, MetadataFold
from strandline.tiers.records import METADATA_TOPIC, MetadataEvent, decode_event, encode_event
from strandline.tiers.store.object_store import GuardedStore, ObjectStore, StoreFailed, claim, open_store

if TYPE_CHECKING:
    from strandline.runtime.runtime import LoopRuntime
    from strandline.tiers.store.interface import StoredObject

T = TypeVar("T")

STORE_URL: Final = "strandline.remote.store.url"
_OPTIONS: Final = "strandline.remote.store.options"
_READ_BYTES: Final = 4 << 20
_RECORD_BYTES: Final = 1_000_000

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The object store. Default: the one that the cluster is set to."),
]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--store-option",
        metavar="KEY=VALUE",
        help="An option of the store, as in strandline.remote.store.options. Secrets are better in the environment.",
    ),
]


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is, and how it is reached."""

    url: str
    options: Mapping[str, str]


def store_address(cluster: Cluster, admin: Any, url: str | None, options: list[str] | None) -> StoreAddress:
    """Return what the user said, or what a broker of the cluster is set to."""
    given = key_values(options, option="--store-option")
    if url is None:
        entries = read_entries(cluster, admin, any_broker(cluster)) or {}
        entry = entries.get(STORE_URL)
        url = None if entry is None else entry.value
        if not url:
            raise CommandFailed(
                f"this cluster has no {STORE_URL}, so it keeps nothing in an object store",
                hint="say --store URL if a store should be looked at all the same",
            )
        secret = entries.get(_OPTIONS)
        if secret is not None and secret.is_set and not given and not url.startswith("file:"):
            raise UsageFailed(
                f"the nodes reach {url} with {_OPTIONS}, which brokers do not tell",
                hint="say the same with --store-option KEY=VALUE, or set the environment as the tools of the store do",
            )
    return StoreAddress(url, given)


def with_store(address: StoreAddress, work: Callable[[ObjectStore, LoopRuntime], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with the store open. Its failures become those of the command."""

    async def run() -> T:
        from strandline.runtime.runtime import LoopRuntime

        runtime = LoopRuntime(asyncio.get_running_loop())
        opened = open_store(address.url, address.options, runtime=runtime)
        try:
            return await work(GuardedStore(opened, runtime), runtime)
        finally:
            close = getattr(opened, "close", None)
            if close is not None:
                close()

    try:
        return asyncio.run(run())
    except StoreFailed as error:
        raise CommandFailed(
            str(error), hint="check --store, its rights and credentials; `strandline storage check --help`"
        ) from None


async def check_owner(store: ObjectStore, runtime: LoopRuntime, cluster_id: str) -> None:
    """Raise unless the marker in the store names this cluster. Nothing is written."""
    owner = (await claim(store, cluster_id, runtime=runtime, is_read_only=True)).cluster_id
    if owner != cluster_id:
        raise CommandFailed(
            f"{store.name} belongs to the cluster {owner}, and this is {cluster_id}",
            hint="name the right cluster with --bootstrap-server, or the right bucket with --store",
        )


def cluster_id_of(client: ClusterClient) -> str:
    def attempt() -> str | None:
        answer = client.ask_any(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
        return answer.cluster_id

    return client.retried("read the id of the cluster", attempt)


async def listed_objects(store: ObjectStore, prefix: str) -> dict[str, StoredObject]:
    """Return the objects below a prefix by their keys."""
    found: dict[str, StoredObject] = {}
    with Progress("listing objects", total=None, unit="objects") as progress:
        async for each in store.list(prefix):
            found[each.key] = each
            progress.reached(len(found))
    return found


def topics_by_id(client: ClusterClient) -> dict[UUID, str]:
    return {topic.topic_id: name for name, topic in client.topics(None).items()}


@dataclass(frozen=True)
class TierMetadata:
    """What the records say that were there when the reading began."""

    fold: MetadataFold
    is_whole: bool
    """Whether the topic exists, and no record of it was deleted."""
    partitions: int
    where: dict[Key, int]
    """In which partition of the topic the records of a tiered partition are."""


def read_metadata(client: ClusterClient, cluster_id: str) -> TierMetadata:
    """Read the metadata of the tier up to its present end."""
    fold, where = MetadataFold(cluster_id), dict[Key, int]()
    topic = client.topic(METADATA_TOPIC)
    if topic is None:
        return TierMetadata(fold, is_whole=False, partitions=0, where={})
    places = [TopicPartition(METADATA_TOPIC, index) for index in topic.leaders]
    starts = client.list_offsets(dict.fromkeys(places, EARLIEST), isolation_level=READ_UNCOMMITTED)
    ends = client.list_offsets(dict.fromkeys(places, LATEST), isolation_level=READ_UNCOMMITTED)
    with Progress(f"reading {METADATA_TOPIC}", total=sum(ends.values()) or None, unit="records") as progress:
        for place in places:
            offset = starts[place]
            while offset < ends[place]:
                data = read_batches(client, place, topic.topic_id, offset, size_bytes_max=_READ_BYTES)
                before = offset
                for record in records_of(data):
                    if offset <= record.offset < ends[place]:
                        offset = record.offset + 1
                        event = _event_of(record.value)
                        if event is not None:
                            fold.apply(event)
                            where[event.partition.key] = place.partition
                if offset == before:
                    # Offsets without a record, as compaction would leave them.
                    break
                progress.advance(offset - before)
    return TierMetadata(fold, is_whole=not any(starts.values()), partitions=len(places), where=where)


def _event_of(value: bytes | None) -> MetadataEvent | None:
    try:
        return None if value is None else decode_event(value)
    except MalformedMessage:
        # Nodes pass it over, too, and say so in their logs.
        return None


def write_events(cluster: Cluster, events: list[tuple[int, MetadataEvent]]) -> None:
    """Write records to partitions of the topic, in their order. Raise CommandFailed unless all are committed."""
    write_records(cluster, METADATA_TOPIC, [(place, encode_event(event)) for place, event in events])


def write_records(
    cluster: Cluster, topic: str, records: list[tuple[int, bytes]], *, size_bytes_max: int = _RECORD_BYTES
) -> None:
    """Write values to partitions of a topic, in their order. Raise CommandFailed unless all are committed."""
    limit_ms = int(cluster.timeout_s * 1000)
    producer = cluster.producer(
        acks="all", enable_idempotence=True, message_timeout_ms=limit_ms, message_max_bytes=size_bytes_max
    )
    failures: list[str] = []

    def on_delivery(error: Any, _: object) -> None:
        if error is not None:
            failures.append(error.str())

    with cluster.errors(f"cannot write to {topic}"):
        for place, value in records:
            while True:
                try:
                    producer.produce(topic, value=value, partition=place, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(cluster.timeout_s + 1)
    if failures or left:
        raise CommandFailed(
            f"{topic} took {len(records) - len(failures) - left} of {len(records)} records: "
            f"{failures[0] if failures else 'timed out'}",
            hint="this needs the right to write to it; the same command may be run again",
        )
