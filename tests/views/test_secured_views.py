"""Views of a cluster with TLS, a login and an authorizer: from Python, and by commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import CommandLine

import strandline
from strandline.errors import InvalidConfig
from strandline.local.embedded_broker import EmbeddedBroker

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(secure=True) as log:
        log.create_topic("totals", cleanup_policy="compact")
        producer = Producer(log.client_config)
        for name, amount in (("a", 1), ("b", 2), ("a", 3)):
            producer.produce(
                "totals", key=json.dumps({"customer": name}), value=json.dumps({"customer": name, "amount": amount})
            )
        assert producer.flush(TIMEOUT_S) == 0
        yield log


def test_commands_and_python_read_the_same(log: EmbeddedBroker, tmp_path: Path) -> None:
    cli = CommandLine(log.bootstrap)
    assert log.command_config is not None
    cli.environ |= {"STRANDLINE_COMMAND_CONFIG": log.command_config, "STRANDLINE_VIEWS": str(tmp_path)}
    cli.ok(
        "view", "create", "sums", "--topic", "totals", "--schema", "customer STRING, amount BIGINT", "--key", "customer"
    )
    assert any("sums" in line for line in cli.ok("view", "list").lines)
    (total,) = cli.ok("view", "query", "select sum(amount) as total from sums", "--json").objects
    assert total == {"total": 5}
    assert cli.ok("pipeline", "list").status == 0
    given = {"bootstrap": log.bootstrap, "directory": tmp_path / "python", "client_config": log.client_config}
    with strandline.views.open("sums", **given) as view:
        assert view.query("select sum(amount) from sums").rows == [(5,)]


def test_a_login_that_is_not_complete_is_told(log: EmbeddedBroker) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.mechanism=GSSAPI is not supported"):
        strandline.views.open("sums", bootstrap=log.bootstrap, client_config={"security.protocol": "SASL_SSL"})
