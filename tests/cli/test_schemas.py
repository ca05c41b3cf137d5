"""`strandline registry serve` and `strandline schema ...` against a registry in a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.clients.broker import shared_broker
from tests.registry.running_registry import running_registry

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "port", "type": "string"}]}


@pytest.fixture(scope="module")
def schemas() -> Iterator[CommandLine]:
    with shared_broker() as bootstrap, running_registry(bootstrap) as registry:
        command_line = CommandLine(bootstrap)
        command_line.environ["STRANDLINE_REGISTRY"] = registry.url
        yield command_line


def test_a_schema_from_file_to_deletion(schemas: CommandLine, tmp_path: Path) -> None:
    old, new = tmp_path / "order.avsc", tmp_path / "new.avsc"
    old.write_text(json.dumps(OLD))
    new.write_text(json.dumps(NEW))
    (made,) = schemas.ok("schema", "register", "a/orders-value", str(old), "--json").objects
    assert made == {"subject": "a/orders-value", "version": 1, "id": 1}
    assert "a/orders-value" in schemas.ok("schema", "list").stdout.decode()
    assert schemas.ok("schema", "list", "a/", "--json").objects == [
        {"subject": "a/orders-value", "version": 1, "id": 1, "type": "AVRO", "deleted": False}
    ]
    assert json.loads(schemas.ok("schema", "show", "a/orders-value").stdout) == OLD
    assert json.loads(schemas.ok("schema", "show", "--id", "1").stdout) == OLD
    assert "takes this schema" in schemas.ok("schema", "check", "a/orders-value", str(old)).stdout.decode()
    refused = schemas.run("schema", "check", "a/orders-value", str(new))
    assert refused.status == 5
    assert "'port'" in refused.stdout.decode()
    rejected = schemas.run("schema", "register", "a/orders-value", str(new))
    assert rejected.status == 1
    assert "409" in rejected.stderr
    assert schemas.run("schema", "delete", "a/orders-value").status == 2, "not confirmed"
    schemas.ok("schema", "delete", "a/orders-value", "--yes")
    assert schemas.run("schema", "show", "a/orders-value").status == 3
    schemas.ok("schema", "delete", "a/orders-value", "--permanent", "--yes")
    assert "there are no schemas" in schemas.ok("schema", "list", "--deleted").stderr


def test_failures_say_what_to_do(schemas: CommandLine, tmp_path: Path) -> None:
    assert schemas.run("schema", "show").status == 2
    assert schemas.run("schema", "register", "s", str(tmp_path / "none.avsc")).status == 1
    away = schemas.run("schema", "list", "--registry", "http://127.0.0.1:1")
    assert away.status == 4
    assert "registry serve" in away.stderr
    outside = schemas.run("registry", "serve", "--listen", "0.0.0.0:8081")
    assert outside.status == 2
    assert "loopback" in outside.stderr or "127.0.0.1" in outside.stderr
