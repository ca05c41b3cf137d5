"""The texts beside the metadata log, in Kafka's formats."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptLog
from strandline.quorum.raft.state_files import MetaProperties, QuorumState, parse_uuid, uuid_text

DIRECTORY = uuid.UUID("12345678-9abc-4def-8123-456789abcdef")


@given(st.uuids())
def test_ids_are_written_as_kafka_writes_them(value: uuid.UUID) -> None:
    text = uuid_text(value)
    assert len(text) == 22
    assert parse_uuid(text) == value


@pytest.mark.parametrize(
    "text", ["", "abc", "A" * 21, "A" * 23, "A" * 44, "!" * 22, "AAAA AAAAAAAAAAAAAAAAA", "ä" * 22]
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(CorruptLog):
        parse_uuid(text)


def test_meta_properties_both_ways() -> None:
    meta = MetaProperties(cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=3, directory_id=DIRECTORY)
    assert MetaProperties.parse(meta.text()) == meta
    assert meta.text().splitlines() == [
        "node.id=3",
        "version=1",
        "directory.id=EjRWeJq8Te-BI0VniavN7w",
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
    ]


def test_meta_properties_as_kafka_writes_them() -> None:
    text = (
        "#\n#Tue Mar 04 09:12:44 UTC 2025\ncluster.id=abc\ndirectory.id=EjRWeJq8Te-BI0VniavN7w\nnode.id=1\nversion=1\n"
    )
    assert MetaProperties.parse(text) == MetaProperties("abc", 1, DIRECTORY)
    assert MetaProperties.parse("cluster.id=abc\nnode.id=1\nversion=1").directory_id == uuid.UUID(int=0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "version"),
        ("version=0\nbroker.id=1\ncluster.id=a", "version 0"),
        ("version=1\ncluster.id=a", "node.id"),
        ("version=1\nnode.id=-1\ncluster.id=a", "node.id"),
        ("version=1\nnode.id=²\ncluster.id=a", "node.id"),
        ("version=1\nnode.id=1", "cluster.id"),
        ("version=1\nnode.id=1\ncluster.id=a\ndirectory.id=short", "short"),
    ],
)
def test_meta_properties_that_say_whose_they_are_not(text: str, said: str) -> None:
    with pytest.raises(CorruptLog, match=said):
        MetaProperties.parse(text)


def test_quorum_state_both_ways() -> None:
    state = QuorumState(leader_epoch=7, leader_id=1, voted_id=2, voted_directory_id=DIRECTORY)
    assert QuorumState.parse(state.text()) == state
    assert (
        state.text()
        == '{"leaderId":1,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"EjRWeJq8Te-BI0VniavN7w","data_version":1}'
    )


def test_quorum_state_of_version_0() -> None:
    text = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert QuorumState.parse(text) == QuorumState(leader_epoch=4, leader_id=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"data_version":2,"leaderId":1,"leaderEpoch":1,"votedId":1}',
        '{"data_version":1,"leaderId":1,"votedId":1}',
        '{"data_version":1,"leaderId":"1","leaderEpoch":1,"votedId":1}',
        '{"data_version":1,"leaderId":true,"leaderEpoch":1,"votedId":1}',
        '{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":7}',
    ],
)
def test_a_vote_that_cannot_be_read_is_never_guessed(text: str) -> None:
    with pytest.raises(CorruptLog):
        QuorumState.parse(text)
