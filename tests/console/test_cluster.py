"""The page of nodes and quorum, and its actions, as far as one node shows them; moves by a state that was made."""

from __future__ import annotations

import pytest
from tests.console.asgi_browser import AsgiBrowser
from tests.console.made_topics import make_topic

from strandline.cli.cluster.state import (
    BrokerState,
    ClusterState,
    DiskState,
    PartitionState,
    QuorumDescription,
    QuorumNode,
    Reassignment,
)
from strandline.console.pages.cluster import _move, verdict
from strandline.local.embedded_broker import EmbeddedBroker


async def test_a_node_is_told_with_what_it_leads_and_its_vote(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "orders", 3)
    found = (await browser.get("/api/v1/clusters/dev/cluster")).json
    assert found["verdict"]["level"] == "ok"
    (node,) = found["nodes"]["rows"]
    assert node["state"] == "running"
    assert node["leaders"] >= 3
    assert 0 < node["free_share"] <= 1
    (voter,) = [each for each in found["voters"]["rows"] if each["role"] == "leader"]
    assert voter["lag_records"] == 0
    page = await browser.get("/c/dev/cluster")
    assert "Every node does its part: 1 of 1 broker up" in page.words
    assert "leads epoch" in page.words
    assert "Nothing is being moved." in page.words


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("cluster-elect?review=1", 409, "Every partition is led by its preferred replica"),
        ("cluster-elect?review=1&topic=nothing", 404, "There is no topic nothing"),
        ("cluster-drain?review=1&node=77", 404, "There is no broker 77"),
        ("cluster-drain?review=1&node=x", 400, "x is no number"),
        ("cluster-reassign-cancel?review=1", 409, "Nothing is being moved"),
    ],
)
async def test_what_cannot_be_done_is_said_before_a_confirmation(
    browser: AsgiBrowser, query: str, status: int, words: str
) -> None:
    form = await browser.get(f"/c/dev/do/{query}")
    assert form.status == status
    assert words in form.words


async def test_the_last_broker_is_not_drained(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "kept")
    (node,) = (await browser.get("/api/v1/clusters/dev/cluster")).json["brokers"]
    form = await browser.get(f"/c/dev/do/cluster-drain?review=1&node={node}")
    assert form.status == 409
    assert "cannot be drained" in form.words


def moving() -> ClusterState:
    """Two brokers up and one down; a partition of 100 bytes moves from 1 to 2 and has copied 25."""
    brokers = (
        BrokerState(1, "a", 1, disk=DiskState(100, sizes={("t", 0): 100})),
        BrokerState(2, "b", 1, disk=DiskState(25, sizes={("t", 0): 25})),
        BrokerState(3, "c", 1, is_up=False),
    )
    partition = PartitionState("t", 0, 1, (1, 2), (1,))
    quorum = QuorumDescription(1, 4, 10, (QuorumNode(1, True, 10),), 0)
    return ClusterState("id", brokers, (partition,), quorum, None, (Reassignment("t", 0, (1, 2), (2,), (1,)),))


def test_a_move_is_told_with_its_progress() -> None:
    state = moving()
    assert state.reassignments is not None
    found = _move(state, state.reassignments[0])
    assert found["share"] == 0.25
    assert found["in_sync"] == "0 of 1"
    assert (found["adding"], found["removing"]) == ("2", "1")


def test_a_broker_that_is_behind_is_the_answer() -> None:
    found = verdict(moving())
    assert found["level"] == "warning"
    assert "Broker 2 is catching up" in found["text"]
