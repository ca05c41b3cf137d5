"""`group list` and `group history` when a node of the cluster is lost, and when another coordinates the group."""

from __future__ import annotations

import pytest
from tests.cli.conftest import CommandLine
from tests.cli.group_reader import GroupReader, settle, shared

from strandline.testing import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "3000",
}


def test_the_coordinator_dies() -> None:
    with embedded(nodes=3, properties=PROPERTIES) as cluster:
        cli = CommandLine(cluster.bootstrap_servers)
        cli.ok("topic", "create", "orders", "--partitions", "3", "--replication-factor", "3")
        with GroupReader(cluster.bootstrap_servers, "billing", "orders", client_id="first") as first:
            settle([first], until=lambda: shared([first], 3))
            (group,) = cli.ok("group", "list", "--json").objects
            (seen,) = cli.ok("group", "history", "billing", "--json").objects
            assert seen["node"] == group["coordinator"], "who coordinates it has seen it"

            cluster.kill(group["coordinator"])
            with GroupReader(cluster.bootstrap_servers, "billing", "orders", client_id="second") as second:
                settle([first, second], until=lambda: shared([first, second], 3))
                told = cli.ok("group", "history", "billing", "--json").objects
                (moved,) = cli.ok("group", "list", "--json").objects
        assert ("second", "joined") in [(note["client"], note["what"]) for each in told for note in each["why"]]
        assert moved["coordinator"] != group["coordinator"]
        assert {each["node"] for each in told} == {moved["coordinator"]}, "what the dead node saw is lost with it"
