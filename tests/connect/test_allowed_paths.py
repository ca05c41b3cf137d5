"""A connector touches no file outside of the directories that its worker allows, whatever its config names it by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from tests.connect.sink_records import batch, record

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.paths import PathRules
from strandline.connect.plugins import Plugins

CONNECTORS: dict[str, Callable[[str], dict[str, str]]] = {
    "DeltaSink": lambda path: {"table.url": f"file://{path}"},
    "DeltaSink plain": lambda path: {"table.url": path},
    "DuckdbSink": lambda path: {"connection.url": f"duckdb:///{path}/t.db"},
    "FileSink": lambda path: {"file": f"{path}/t.txt"},
    "IcebergSink": lambda path: {
        "catalog.type": "sql",
        "catalog.uri": "sqlite:///:memory:",
        "catalog.warehouse": f"file://{path}",
    },
    "IcebergSink catalog": lambda path: {"catalog.type": "sql", "catalog.uri": f"sqlite:///{path}/catalog.db"},
    "ObjectSink": lambda path: {"store.url": f"file://{path}"},
    "ObjectSource": lambda path: {"store.url": f"file://{path}", "topic": "t"},
    "SearchSink": lambda path: {"index.path": f"{path}/index"},
    "SqlSource": lambda path: {
        "connection.url": f"sqlite:///{path}/t.db",
        "mode": "bulk",
        "topic.prefix": "t",
        "table.include.list": "t",
    },
    "SqlSource uri": lambda path: {
        "connection.url": f"sqlite:///file:{path}/t.db?mode=ro&uri=true",
        "mode": "bulk",
        "topic.prefix": "t",
        "table.include.list": "t",
    },
    "SqliteSink": lambda path: {"connection.url": f"sqlite:///{path}/t.db"},
}


def use(connector: Any) -> None:
    """Open a connector, and let a sink write a record."""

    async def opened() -> None:
        result = connector.open()
        if isawaitable(result):
            await result

    asyncio.run(opened())
    if hasattr(connector, "write"):
        connector.write(batch(record(0, {"id": 1})))
        connector.flush()


@pytest.mark.parametrize("name", CONNECTORS)
def test_only_allowed_directories_are_touched(name: str, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    made = Plugins().find(name.split()[0]).load()
    for forbidden in (tmp_path / "other", allowed / ".." / "other"):
        config = {"name": "test", **CONNECTORS[name](str(forbidden))}
        connector = made(made.Config(config))
        connector.paths = PathRules([allowed])
        with pytest.raises(InvalidConnectorConfig, match="may not use the path"):
            use(connector)
    assert not (tmp_path / "other").exists()


def test_a_catalog_loads_no_classes_that_a_config_names() -> None:
    made = Plugins().find("IcebergSink").load()
    for name in ("py-catalog-impl", "py-io-impl"):
        with pytest.raises(InvalidConnectorConfig, match=f"catalog.{name}: a config cannot name a class"):
            made(made.Config({"name": "test", f"catalog.{name}": "os.system"})).open()


def test_an_option_that_the_store_does_not_know_is_refused() -> None:
    for name in ("ObjectSink", "ObjectSource"):
        made = Plugins().find(name).load()
        config = {"name": "test", "store.url": "s3://bucket", "topic": "t", "store.option.nonsense": "1"}
        with pytest.raises(InvalidConnectorConfig, match=r"store\.option\.nonsense"):
            made(made.Config(config)).open()
