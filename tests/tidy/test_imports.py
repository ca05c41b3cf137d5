"""Imports point inward, from the broker to the codec and never back, and what is called pure is pure."""

from __future__ import annotations

import pytest
from tests.tidy.debts import IMPURE, PURE
from tests.tidy.sources import SOURCE, Facts, modules

BASE = {"_twins", "_version", "config", "errors", "ids", "runtime"}
SERVERS = {"codec", "log", "partition", "replication", "quorum", "coordinators", "observability", "lag", "security"}
MAY_IMPORT = {
    "config": {"errors", "runtime"},
    "runtime": {"errors"},
    "codec": {"errors", "ids"},
    "log": {"codec"} | BASE,
    "replication": {"codec"} | BASE,
    "partition": {"codec", "log", "replication"} | BASE,
    # The controller derives keys of users, and checks access rules and quotas.
    "quorum": {"codec", "security"} | BASE,
    "coordinators": {"codec"} | BASE,
    "observability": {"codec"} | BASE,
    "lag": set(),
    "documents": set(),
    "advice": {"documents"},
    "security": {"codec"} | BASE,
    "handlers": SERVERS | BASE,
    # Schemas only for topics that validate records by them; loaded late.
    # The object store only where tiered topics are enabled; loaded late.
    "broker": {"handlers", "schemas", "tiers"} | SERVERS | BASE,
    "tiers": {"codec", "log"} | BASE,
    "client": {"codec", "security"} | BASE,
    # Starts nodes as processes and formats their directories; the process that can cut links runs a node itself.
    "local": {"broker", "client", "codec", "log", "quorum", "security"} | BASE,
    "testing": {"codec", "local"} | BASE,
    "schemas": {"client", "codec"} | BASE,
    # Connectors: clients of the cluster and of other systems. Values may have schemas of a registry.
    "connect": {"client", "codec", "schemas"} | BASE,
    # Sources of change data: connectors.
    "cdc": {"client", "codec", "connect", "schemas"} | BASE,
    # The relay of an outbox is a connector.
    "outbox": {"client", "codec", "connect"} | BASE,
    "inbox": {"effects", "outbox"} | BASE,
    "effects": {"client", "codec"} | BASE,
    # SQLite files into a topic and back.
    "sqlite": {"client", "codec"} | BASE,
    # Processes beside the nodes: clients of the cluster that speak HTTP.
    "services": {"client", "codec", "connect", "console", "local", "schemas", "security"} | BASE,
    # The web console: a second face of what `cli` reads and judges (decision 0064), of which it may use what defines no
    # command.
    "console": {"advice", "cli", "client", "codec", "documents", "lag", "pipelines", "schemas", "security", "views"}
    | BASE,
    # Values may have schemas of a registry. Tables of Iceberg and Delta are those of the connectors.
    "spark": {"client", "codec", "connect", "schemas"} | BASE,
    # Made from the log alone, without Spark: they share its reader of topics into Arrow.
    "views": {"client", "spark", "schemas", "codec"} | BASE,
    # Consumers that run the handlers of a Python program.
    "queue": {"client", "codec", "effects"} | BASE,
    # With no option a pipeline runs on an embedded node.
    "pipelines": {"client", "spark", "views", "codec", "local"} | BASE,
    # Tools are clients: they speak the Kafka protocol. Only the commands that run a node know one, and `log dump`
    # reads files.
    "cli": {
        "client",
        "codec",
        "log",
        "broker",
        "local",
        "coordinators",
        "quorum",
        "lag",
        "spark",
        "views",
        "pipelines",
        "security",
        "documents",
        "advice",
        "schemas",
        "services",
        "connect",
        "cdc",
        "outbox",
        "sqlite",
        "tiers",
    }
    | BASE,
}
DRIVEN = ("partition",)
"""They use files only through the log, and clock and threads only through the `Runtime`, that they are given."""
TYPES_ONLY = {"random"}
"""A source of randomness is handed in; only its type may be named."""


def of_package(package: str) -> list[Facts]:
    return [each for each in modules() if each.package == package]


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_inward(package: str) -> None:
    wrong = []
    for each in of_package(package):
        for found in each.imports:
            parts = found.module.split(".")
            if parts[0] != "strandline" or len(parts) < 2:
                continue
            if parts[1] != package and parts[1] not in MAY_IMPORT[package]:
                wrong.append(f"{each.place}:{found.line} imports {found.module}")
    assert not wrong, "\n".join(wrong)


def test_the_product_never_imports_what_tests_it() -> None:
    """`strandline.testing` is for users' tests. The pytest plugin loads it by its entry point."""
    wrong = [
        f"{each.place}:{found.line} imports {found.module}"
        for each in modules()
        for found in each.imports
        if each.package != "testing" and (f"{found.module}.").startswith(("strandline.testing.", "tests."))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_console_uses_no_command() -> None:
    """It shows what `cli` reads and judges. A module that defines a command takes options and prints."""
    commands = {each.name for each in modules() if any(found.module == "typer" for found in each.imports)}
    wrong = [
        f"{each.place}:{found.line} imports {found.module}"
        for each in of_package("console")
        for found in each.imports
        if found.module in commands
    ]
    assert not wrong, "\n".join(wrong)


def test_every_package_has_its_place() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert packages == set(MAY_IMPORT)


@pytest.mark.parametrize("package", PURE + DRIVEN)
def test_pure_and_driven_packages_touch_nothing_themselves(package: str) -> None:
    assert_touch_nothing(of_package(package))


def test_access_rules_touch_nothing_themselves() -> None:
    """Other parts of `security` read certificates and clocks."""
    rules = [each for each in modules() if f"{each.name}.".startswith("strandline.security.acl.")]
    assert rules
    assert_touch_nothing(rules)


def test_the_registry_decides_without_touching_anything() -> None:
    """Only the parts of `schemas` that read the topic and serve HTTP touch the world."""
    touching = {"election", "forwarding", "http", "registry", "topic"}
    deciding = [
        each
        for each in modules()
        if each.name.startswith("strandline.schemas.") and each.name.split(".")[2] not in touching
    ]
    assert deciding
    assert_touch_nothing(deciding)


def assert_touch_nothing(facts: list[Facts]) -> None:
    wrong = []
    for each in facts:
        for found in each.imports:
            if found.module.split(".")[0] in IMPURE | TYPES_ONLY and not found.is_for_types:
                wrong.append(f"{each.place}:{found.line} imports {found.module}")
        wrong += [f"{each.place}:{line} {what}" for line, what in each.impure]
    assert not wrong, "\n".join(wrong)


def test_only_the_broker_and_clients_open_sockets() -> None:
    allowed = {
        "broker",
        "client",
        "connect",
        "cdc",
        "local",
        "outbox",
        "testing",
        "cli",
        "spark",
        "services",
        "schemas",
    }
    wrong = [
        f"{each.place}:{found.line}"
        for each in modules()
        if each.package not in allowed
        for found in each.imports
        if found.module.split(".")[0] == "socket"
    ]
    assert not wrong, wrong


def test_every_package_tells_its_part() -> None:
    docstrings = {each.name: each.docstring for each in modules()}
    for package in MAY_IMPORT:
        text = docstrings[f"strandline.{package}"]
        assert len(text.splitlines()) >= 3, f"{package}/__init__.py should describe the package in a few lines"
