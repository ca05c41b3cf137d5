"""docs/cdc.md and the example of a public stream: configs are valid, and the contract and the pipeline can be read."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tests.cli.conftest import CommandLine

from strandline.cli.connect.connector_files import read_connector_file
from strandline.connect.herder.worker_settings import WorkerSettings
from strandline.connect.plugins import Plugins
from strandline.connect.validation.checks import validate

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cdc.md").read_text()
SECRET = re.compile(r"\$\{env:[^}]*\}")


def errors_of(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, config in read_connector_file(path).connectors.items():
        checked = validate(
            Plugins(()),
            {"name": name, **config},
            defaults=WorkerSettings({}).of_connectors(),
            resolve=lambda given: {each: SECRET.sub("resolved", value) for each, value in given.items()},
        )
        found |= {f"{name} {each.name}": list(each.errors) for each in checked.settings.values() if each.errors}
    return found


def test_the_connectors_of_the_page_and_of_the_shop_are_valid(tmp_path: Path) -> None:
    text = next(each for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "connectors:" in each)
    (tmp_path / "replica.yaml").write_text(text)
    assert errors_of(tmp_path / "replica.yaml") == {}
    assert errors_of(ROOT / "examples" / "shop_services" / "connectors.yaml") == {}


def test_the_alert_rules_ask_for_metrics_of_the_source() -> None:
    text = next(each for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "alert:" in each)
    rules = yaml.safe_load(text)["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"strandline_connect_source_(\w+)", rule["expr"])}
    assert asked == {"slot_held_bytes", "slot_is_lost", "last_commit_timestamp_seconds"}


def test_the_public_stream_of_the_example_reads_private_changes() -> None:
    cli = CommandLine()
    explained = cli.run("pipeline", "explain", str(ROOT / "examples" / "public_orders" / "orders.sql"))
    assert explained.status == 0, explained.stderr
    assert "reads    topic private.shop.public.orders" in explained.stdout.decode()
    assert "writes   topic shop.orders, appended to, by order_id" in explained.stdout.decode()
