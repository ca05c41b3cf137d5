"""The layout of a cluster on one machine: who is what, where, and that it stays so from start to start."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from strandline.config.node_config import BrokerConfig
from strandline.config.properties import parse_properties
from strandline.errors import InvalidConfig
from strandline.local.local_cluster import LAYOUT, lay_out


def test_three_nodes_are_controllers_and_more_are_brokers(tmp_path: Path) -> None:
    cluster = lay_out(tmp_path, 5, port=20_000)
    assert [place.port for place in cluster.places] == [20_000, 20_001, 20_002, 20_003, 20_004]
    assert [place.controller_port is not None for place in cluster.places] == [True, True, True, False, False]
    configs = [BrokerConfig.load("", cluster.properties(place)) for place in cluster.places]
    assert [config.is_controller for config in configs] == [True, True, True, False, False]
    assert {tuple(config.quorum_voters()) for config in configs} == {(1, 2, 3)}
    ids = [parse_properties((place.directory / "meta.properties").read_text()) for place in cluster.places]
    assert {each["cluster.id"] for each in ids} == {cluster.cluster_id}
    assert [each["node.id"] for each in ids] == ["1", "2", "3", "4", "5"]
    assert len({each["directory.id"] for each in ids}) == 5


@pytest.mark.parametrize(("nodes", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_one_or_three_vote(tmp_path: Path, nodes: int, voters: int) -> None:
    cluster = lay_out(tmp_path, nodes)
    assert sum(place.controller_port is not None for place in cluster.places) == voters
    ports = [place.port for place in cluster.places]
    ports += [place.controller_port for place in cluster.places if place.controller_port is not None]
    assert len(set(ports)) == nodes + voters, "no port is given twice"


def test_a_cluster_is_found_again_and_may_grow(tmp_path: Path) -> None:
    first = lay_out(tmp_path, 3)
    meta = (tmp_path / "node-1" / "meta.properties").read_text()
    again = lay_out(tmp_path, 4, port=20_100)
    assert again.cluster_id == first.cluster_id
    controller_ports = [place.controller_port for place in first.places]
    assert [place.controller_port for place in again.places] == [*controller_ports, None]
    assert (tmp_path / "node-1" / "meta.properties").read_text() == meta
    with pytest.raises(InvalidConfig, match="holds a cluster of 4 nodes; expected at least so many, not 3"):
        lay_out(tmp_path, 3)


def test_two_nodes_that_become_three_keep_their_one_voter(tmp_path: Path) -> None:
    lay_out(tmp_path, 2)
    assert [place.controller_port is None for place in lay_out(tmp_path, 3).places] == [False, True, True]


def test_controllers_move_when_somebody_took_a_port(tmp_path: Path) -> None:
    first = lay_out(tmp_path, 3)
    taken = first.places[1].controller_port
    assert taken is not None
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", taken))
        stranger.listen()
        again = lay_out(tmp_path, 3)
    assert taken not in [place.controller_port for place in again.places]
    assert json.loads((tmp_path / LAYOUT).read_text())["nodes"][1]["controller_port"] == again.places[1].controller_port


def test_a_directory_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(InvalidConfig, match="holds a single node"):
        lay_out(tmp_path, 3)
    (tmp_path / LAYOUT).write_text("[]")
    with pytest.raises(InvalidConfig, match="is not what was written there"):
        lay_out(tmp_path, 3)
