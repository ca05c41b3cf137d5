"""The files of a topic with three replicas: each broker tells of its own."""

from __future__ import annotations

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.test_topic_scrub import flip
from tests.cli.test_topic_storage import fill
from tests.clients.client import until
from tests.clients.positions import write

from strandline.testing import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_damaged_replica_is_mended_and_then_compacted() -> None:
    with embedded(nodes=3) as cluster:
        cli = CommandLine(cluster.bootstrap_servers)
        cluster.create_topic("prices", cleanup_policy="compact", segment_bytes=1048576)
        fill(cluster.bootstrap_servers, "prices", 2.5)
        cluster.wait_in_sync("prices")
        follower = next(node_id for node_id in (1, 2, 3) if node_id != cluster.leader_of("prices"))
        cluster.stop(follower)
        flip(cluster.nodes[follower].data / "prices-0" / "00000000000000000000.log", 250_000)
        cluster.start(follower)
        cluster.wait_in_sync("prices")
        # The cleaner may meet the damage before it is mended; then it is set aside, and the others are done.
        first = cli.run("topic", "compact", "prices", "--now")
        if first.status:
            assert f"prices-0 on broker {follower} was not compacted: " in first.stderr
            assert len(first.lines) == 2
        until("the replica is mended", lambda: cli.run("topic", "compact", "prices", "--now").status == 0)
        until("nothing is damaged", lambda: cli.run("topic", "scrub", "prices", "--now").status == 0)
        cli.ok("cluster", "health")


def test_every_replica_and_who_was_not_asked() -> None:
    with embedded(nodes=3) as cluster:
        cli = CommandLine(cluster.bootstrap_servers)
        cluster.create_topic("orders")
        write(cluster.bootstrap_servers, "orders", 10)
        cluster.wait_in_sync("orders")
        leader = cluster.leader_of("orders")
        heads = [line for line in cli.ok("topic", "describe", "orders", "--storage").lines if "on broker" in line]
        assert len(heads) == 1
        assert heads[0].startswith(f"orders-0 on broker {leader} (leader): offsets 0–9, ")
        shown = cli.ok("topic", "describe", "orders", "--storage", "--replicas").lines
        heads = [line for line in shown if "on broker" in line]
        assert len(heads) == 3
        assert [f"broker {leader} (leader)" in head for head in heads] == [True, False, False]
        followers = [node_id for node_id in (1, 2, 3) if node_id != leader]
        assert all(f"broker {node_id} (follower)" in head for node_id, head in zip(followers, heads[1:], strict=True))
        dead = followers[0]
        cluster.kill(dead)
        (described,) = cli.ok("topic", "describe", "orders", "--storage", "--json").objects
        assert sorted(replica["broker"] for replica in described["storage"]) == sorted({1, 2, 3} - {dead})
        assert list(described["not_asked"]) == [str(dead)]
        told = cli.ok("topic", "describe", "orders", "--storage")
        assert f"broker {dead} was not asked for its replicas: " in told.stderr
        scrubbed = cli.run("topic", "scrub", "orders", "--now")
        assert scrubbed.status == 4
        assert [line.endswith("all of it is whole") for line in scrubbed.lines] == [True, True]
        assert f"error: broker {dead} " in scrubbed.stderr
