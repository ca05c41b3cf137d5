"""Topic names become directory names: what is no name is refused everywhere, and nothing outside is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hostile.batches import batch, produce
from tests.hostile.neighbour import TOPIC
from tests.hostile.peer import Closed, Peer
from tests.hostile.stage import stage

from strandline.codec.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

BAD_NAMES = {
    "empty": "",
    "dot": ".",
    "two dots": "..",
    "parent": "../evil",
    "parents": "../../../../../../tmp/strandline-evil",
    "absolute": "/tmp/strandline-evil",
    "slash": "a/b",
    "backslash": "a\\b",
    "NUL": "a\x00b",
    "NUL at the end": "orders\x00",
    "newline": "orders\n",
    "space": "a b",
    "colon": "a:b",
    "comma": "a,b",
    "star": "*",
    "tilde": "~",
    "umlaut": "bestellungen-für-jörg",
    "Chinese": "订单",
    "emoji": "🜁",
    "Arabic digits": "orders-٣",
    "full-width letter": "ｏrders",
    "combining mark": "e\u0301",
    "right-to-left": "\u202eorders",
    "zero-width": "or\u200bders",
    "250 characters": "x" * 250,
    "32,000 characters": "x" * 32_000,
    "249 characters in two bytes each": "ä" * 249,
}
GOOD_NAMES = ["x" * 249, "a.b_c-D9", "...", "-", "_", "a..b", ".a", "0"]


class Surroundings:
    """Everything beside the data directory, as it was."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._before = self._look()

    def _look(self) -> set[str]:
        return {
            os.path.join(root, name)
            for root, directories, files in os.walk(self._data.parent)
            for name in (*directories, *files)
            if not os.path.join(root, name).startswith(f"{self._data}{os.sep}")
        }

    def check(self) -> None:
        assert self._look() == self._before
        assert not Path("/tmp/strandline-evil").exists()
        names = os.listdir(self._data)
        assert all(name.isascii() and "\n" not in name for name in names), names


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    data = tmp_path_factory.mktemp("names") / "data"
    with stage({}, data=data) as log:
        surroundings = Surroundings(data)
        yield log
        surroundings.check()


def directories(broker: EmbeddedBroker) -> list[str]:
    """The logs that are there. The neighbour's consumer may have its offsets topic made at any time."""
    found = (path.name for path in broker.data.iterdir() if path.is_dir())
    return sorted(name for name in found if not name.startswith("__consumer_offsets-"))


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.port) as made:
        yield made
        assert made.is_served()


def create(peer: Peer, name: str, **options: object) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for key, value in options.items():
        setattr(topic, key, value)
    code: int = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code
    return code


def metadata(peer: Peer, name: str, *, auto_create: bool = True, version: int = 9) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=auto_create)
    code: int = peer.ask(request, version).topics[0].error_code
    return code


@pytest.mark.parametrize("case", BAD_NAMES)
def test_a_name_that_is_none_is_refused_everywhere(peer: Peer, broker: EmbeddedBroker, case: str) -> None:
    name = BAD_NAMES[case]
    before = directories(broker)
    assert create(peer, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    for version in (0, 1, 4, 9, 13):
        assert metadata(peer, name, version=version) == ErrorCode.INVALID_TOPIC_EXCEPTION
    # For whom writes and reads it is one more topic that is not there, as in Kafka.
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert peer.ask(produce(name, batch()), 9).responses[0].partition_responses[0].error_code == unknown
    fetch = FetchRequest(topics=[FetchTopic(topic=name, partitions=[FetchPartition()])])
    assert peer.ask(fetch, 11).responses[0].partitions[0].error_code == unknown
    asked = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition()])])
    assert peer.ask(asked, 5).topics[0].partitions[0].error_code == unknown
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    assert peer.ask(delete, 6).responses[0].error_code == unknown
    assert directories(broker) == before


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda name: name[:8])
def test_the_longest_and_oddest_names_that_are_allowed(peer: Peer, broker: EmbeddedBroker, name: str) -> None:
    assert create(peer, name) == 0
    assert (broker.data / f"{name}-0").is_dir()
    assert peer.ask(produce(name, batch()), 9).responses[0].partition_responses[0].error_code == 0
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    assert peer.ask(delete, 6).responses[0].error_code == 0


def test_names_of_the_files_beside_the_topics(peer: Peer, broker: EmbeddedBroker) -> None:
    """A topic gets a dash and a number, so that it can never be one of the files that are there already."""
    for name in ("meta.properties", ".lock", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "x-delete"):
        assert create(peer, name) == 0
        assert (broker.data / f"{name}-0").is_dir()
    assert (broker.data / "meta.properties").is_file()
    assert create(peer, "__cluster_metadata") in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert metadata(peer, "__cluster_metadata") != 0


def test_a_topic_whose_name_ends_like_a_partition(peer: Peer, broker: EmbeddedBroker) -> None:
    assert create(peer, "orders-1") == 0
    assert create(peer, "orders", num_partitions=12) == 0
    assert peer.ask(produce("orders-1", batch([b"mine"])), 9).responses[0].partition_responses[0].error_code == 0
    assert (
        peer.ask(produce("orders", batch([b"yours"]), partition=1), 9).responses[0].partition_responses[0].base_offset
        == 0
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=260))
def test_any_text_at_all(broker: EmbeddedBroker, name: str) -> None:
    legal = (
        0 < len(name) <= 249
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )
    with Peer(broker.port) as peer:
        code = create(peer, name, configs=[CreatableTopicConfig(name="retention.ms", value="1000")])
        allowed = (
            (0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION)
            if legal
            else (ErrorCode.INVALID_TOPIC_EXCEPTION,)
        )
        assert code in allowed


@pytest.mark.parametrize("group", ["", "../evil", "a\x00b", "🜁", "x" * 30_000])
def test_group_ids_are_no_paths(broker: EmbeddedBroker, group: str) -> None:
    from strandline.codec.messages.offset_commit_request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    commit = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(committed_offset=1)])],
    )
    with Peer(broker.port) as peer:
        try:
            answer = peer.ask(commit, 7)
        except Closed:
            return
        assert isinstance(answer.topics[0].partitions[0].error_code, int)


def test_configs_are_checked_before_anything_is_made(peer: Peer, broker: EmbeddedBroker) -> None:
    before = directories(broker)
    for key, value in (
        ("retention.ms", "soon"),
        ("segment.bytes", "-1"),
        ("segment.bytes", "9" * 400),
        ("no.such.config", "1"),
        ("", ""),
        ("cleanup.policy", "x" * 30_000),
        ("max.message.bytes", None),
        ("flush.ms", "1e3"),
        ("segment.ms", "٣٣٣٣"),
    ):
        code = create(peer, "configured", configs=[CreatableTopicConfig(name=key, value=value)])
        assert code == ErrorCode.INVALID_CONFIG, (key, value)
    assert create(peer, "configured", num_partitions=0) == ErrorCode.INVALID_PARTITIONS
    assert create(peer, "configured", replication_factor=3) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(peer, "configured", num_partitions=2**31 - 1) == ErrorCode.POLICY_VIOLATION
    assert directories(broker) == before
