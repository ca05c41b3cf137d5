"""Who may connect: caps, exceptions from them, and the rate."""

from __future__ import annotations

import socket

import pytest
from tests.hostile.peer import Peer
from tests.hostile.process import until
from tests.hostile.stage import stage
from tests.hostile.test_connections import peer_is_served

from strandline.broker.network.admission import Admission, parse_overrides
from strandline.broker.network.descriptors import SET_ASIDE, share_out
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig


def test_a_cap_is_on_by_default() -> None:
    config = BrokerConfig.load("")
    assert config.max_connections == 16_384
    assert config.connection_first_request_timeout_ms == 30_000
    assert config.connection_partial_request_timeout_ms == 60_000


def test_descriptors_are_a_cap_whatever_the_setting_says() -> None:
    admission = Admission(connections_max=1000, connections_room=10)
    assert not admission.is_full_for("a", 9, 0)
    assert admission.is_full_for("a", 10, 0)
    admission = Admission(connections_max=10, connections_room=1000)
    assert admission.is_full_for("a", 10, 0)


@pytest.mark.parametrize(("limit", "files", "connections"), [(1024, 480, 480), (20_000, 1024, 18_912), (10, 16, 16)])
def test_files_and_connections_share_the_descriptors(limit: int, files: int, connections: int) -> None:
    share = share_out(limit, open_files_max=1024)
    assert share == (files, connections)
    assert limit < 2 * SET_ASIDE or sum(share) + SET_ASIDE <= limit


def test_one_address_has_its_own_number() -> None:
    overrides = parse_overrides(["127.0.0.5:3", " [::1]:4", "localhost:7"])
    assert overrides["127.0.0.5"] == 3
    assert overrides["127.0.0.1"] == 7
    admission = Admission(connections_max=100, connections_per_host_max=1, per_host_overrides=overrides)
    assert not admission.is_full_for("127.0.0.5", 50, 2)
    assert admission.is_full_for("127.0.0.5", 50, 3)
    assert not admission.is_full_for("::ffff:127.0.0.5", 50, 2), "the same address over an IPv6 socket"
    assert admission.is_full_for("127.0.0.9", 50, 1)


@pytest.mark.parametrize("entry", ["127.0.0.1", ":5", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:many", "no such host:3"])
def test_an_override_that_is_none(entry: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_overrides([entry])


def test_a_second_has_so_many_connections() -> None:
    admission = Admission(connections_max=100_000, creations_per_s_max=5)
    now = 1000.0

    def accepted() -> int:
        count = 0
        while not admission.delay_s(now):
            admission.note_creation()
            count += 1
        return count

    assert accepted() == 5
    assert accepted() == 0
    now += admission.delay_s(now) + 1e-9
    assert accepted() == 1
    now += 1000
    assert accepted() == 5, "what was not used yesterday is not to be had today"
    admission.creations_per_s_max = 0
    assert admission.delay_s(now + 100) > 0


def test_one_address_is_full_and_another_is_not() -> None:
    properties = {"max.connections.per.ip.overrides": "127.0.0.2:3"}
    with stage({}, properties=properties) as log:
        first = [from_address("127.0.0.2", log.port) for _ in range(3)]
        assert all(peer.is_served() for peer in first)
        with from_address("127.0.0.2", log.port) as refused:
            assert not peer_is_served(refused)
        with from_address("127.0.0.3", log.port) as other:
            assert other.is_served()
        first.pop().close()

        def room_again() -> bool:
            with from_address("127.0.0.2", log.port) as again:
                return peer_is_served(again)

        until(room_again, "room for one more")
        for peer in first:
            assert peer.is_served()
            peer.close()


def from_address(source: str, port: int) -> Peer:
    return Peer(port, source=source)


def test_connections_beyond_the_rate_wait_and_are_served() -> None:
    with stage({}, properties={"max.connection.creation.rate": "20"}) as log:
        peers = [Peer(log.port) for _ in range(40)]
        # Nobody is refused: the last of them have waited in the kernel's queue.
        assert all(peer.is_served() for peer in peers)
        for peer in peers:
            peer.close()


def test_a_free_address_is_there() -> None:
    """The tests above stand on it: all of 127.0.0.0/8 is this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.2", 0))
