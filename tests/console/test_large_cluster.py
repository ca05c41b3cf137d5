"""A cluster of 5,000 topics, 100,000 partitions and 2,000 groups, which `bench.simulated_cluster` only says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole

from strandline.cli.common.partition_places import brokers_of, leaders_of, offsets_of, places_of
from strandline.cli.common.positions import Earliest, Latest, Position
from strandline.cli.group.offsets import committed_by_group
from strandline.cli.records.record import ReadRecord
from strandline.client.cluster_client import EARLIEST, LATEST, ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection
from strandline.client.large_answers import walk_metadata, walk_offsets
from strandline.codec.message import Message
from strandline.codec.message_codec import encode
from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.codec.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.console.reading import record_merge
from strandline.console.reading.cluster_metadata import read_metadata
from strandline.console.reading.record_merge import RecordsAsked, read_records
from strandline.console.reading.user_cluster import ClusterUser, cluster_of
from strandline.errors import MalformedMessage

LARGE = ("--topics", "5000", "--partitions", "20", "--groups", "2000")
SMALL = ("--topics", "30", "--partitions", "7", "--groups", "205")


@contextmanager
def simulated(*options: str) -> Iterator[str]:
    """Run a simulated cluster, and yield its address."""
    command = [sys.executable, "-m", "bench.simulated_cluster", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


@pytest.mark.parametrize("version", range(MetadataResponse.VERSION_MIN, MetadataResponse.VERSION_MAX + 1))
def test_a_walked_answer_says_what_a_decoded_one_says(version: int) -> None:
    partitions = [MetadataResponsePartition(0, each, 1, replica_nodes=[1, 2], isr_nodes=[1]) for each in range(3)]
    topics = [MetadataResponseTopic(0, name, partitions=partitions) for name in ("a", "b")]
    brokers = [MetadataResponseBroker(1, "one", 9092)]
    cluster_id = "c" if version >= 2 else None
    message = MetadataResponse(brokers=brokers, cluster_id=cluster_id, topics=topics)
    body = b"head" + encode(message, version)
    walked = walk_metadata(memoryview(body), 4, version)
    assert (walked.brokers, walked.cluster_id, list(walked.topics)) == (brokers, cluster_id or "", topics)
    for end in range(4, len(body) - 9):
        with pytest.raises(MalformedMessage):
            list(walk_metadata(memoryview(body[:end]), 4, version).topics)


@pytest.mark.parametrize("version", range(ListOffsetsResponse.VERSION_MIN, ListOffsetsResponse.VERSION_MAX + 1))
def test_walked_offsets_are_those_of_a_decoded_answer(version: int) -> None:
    partitions = [ListOffsetsPartitionResponse(each, 0, -1, 1000 + each) for each in range(3)]
    topics = [ListOffsetsTopicResponse(name, partitions) for name in ("a", "b")]
    body = b"head" + encode(ListOffsetsResponse(topics=topics), version)
    assert list(walk_offsets(memoryview(body), 4, version)) == topics
    for end in range(4, len(body) - 9):
        with pytest.raises(MalformedMessage):
            list(walk_offsets(memoryview(body[:end]), 4, version))


def test_our_own_client_finds_leaders_offsets_and_positions() -> None:
    with simulated(*SMALL) as bootstrap:
        cluster = cluster_of(bootstrap, ClusterUser())
        assert [each.id for each in brokers_of(cluster)] == list(range(6))
        leaders = leaders_of(cluster)
        assert len(leaders) == 30 * 7
        topic = "team-03.orders.v0003"
        assert leaders_of(cluster, [topic, "gone"]) == {
            place: broker for place, broker in leaders.items() if place[0] == topic
        }
        whole = places_of(cluster)
        assert whole.cluster_id == "simulated"
        assert len(whole.topics[topic].partitions) == 7
        assert whole.topics[topic].partitions[6].leader == leaders[topic, 6].id  # type: ignore[union-attr]  # it has one
        places = [(topic, 6), (topic, 0), ("gone", 0)]
        assert offsets_of(cluster, places, LATEST) == {places[0]: 4006, places[1]: 4000, places[2]: None}
        assert offsets_of(cluster, places[:1], EARLIEST) == {places[0]: 0}
        groups = [f"readers-{number:04}" for number in range(205)]
        found = committed_by_group(cluster, [*groups, "never"])
        assert set(found) == {*groups, "never"}
        assert found["never"] == {}
        behind = found["readers-0001"]["team-07.orders.v0007", 3].offset
        assert behind == 8_003 - 500


def test_partitions_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Message] = []
    send = BrokerConnection.send

    def counted(connection: BrokerConnection, request: Message, version: int) -> None:
        sent.append(request)
        send(connection, request, version)

    monkeypatch.setattr(BrokerConnection, "send", counted)

    def read(begin: Position) -> tuple[list[ReadRecord], int]:
        sent.clear()
        found = read_records(client, RecordsAsked("team-03.orders.v0003", 50, begin), time.monotonic)
        return [each.record for each in found.records], sum(isinstance(each, FetchRequest) for each in sent)

    with simulated("--topics", "30", "--partitions", "48", "--groups", "1") as bootstrap:
        client = ClusterClient(ClientSettings.within(bootstrap, "test", 60.0))
        together = {begin: read(begin) for begin in (Latest(), Earliest())}
        monkeypatch.setattr(record_merge, "begin_together", lambda client, starts: None)
        for begin, (records, fetches) in together.items():
            alone, fetches_alone = read(begin)
            assert len(records) == 50
            assert records == alone
            # There are six brokers. Once around, or twice, is enough.
            assert fetches <= 12 < 48 <= fetches_alone
        client.close()


@pytest.mark.slow
async def test_every_page_of_a_large_cluster_is_shown(make_console: MakeConsole) -> None:
    with simulated(*LARGE) as bootstrap:
        client = ClusterClient(ClientSettings.within(bootstrap, "test", 60.0))
        metadata = read_metadata(client)
        assert sum(len(each.partitions) for each in metadata.topics.values()) == 100_000
        assert read_metadata(client, metadata) is metadata
        client.close()
        browser = AsgiBrowser(make_console({"dev": bootstrap}).app)
        pages = ("", "topics", "cluster", "groups/readers-0011", "topics/team-07.orders.v0007/partitions")
        for page in pages:
            # The first answers of a machine that has much to do may come after the 15 s that a page has.
            answer = await browser.until(f"/c/dev/{page}".rstrip("/"), lambda answer: answer.status == 200)
            # Tables are paged before they are rendered.
            assert len(answer.body) < 100_000
        await browser.until("/c/dev/groups", lambda answer: "readers-" in answer.words)
