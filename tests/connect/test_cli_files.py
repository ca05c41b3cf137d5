"""`strandline connect validate`, `preview`, `plugins` and `scaffold`: commands about files, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine

from strandline.cli.common.failures import UsageFailed
from strandline.cli.connect.apply import changes
from strandline.cli.connect.record_words import value_json
from strandline.cli.connect.scaffold import names_of

LINES = """\
connectors:
  lines:
    connector.class: FileSource
    file: {file}
    topic: lines
    follow: false
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A command line in an empty directory, that knows no cluster."""
    monkeypatch.chdir(tmp_path)
    command_line = CommandLine()
    command_line.environ.pop("STRANDLINE_BOOTSTRAP", None)
    return command_line


def lines_file(content: str = "first\nsecond\nthird\n", more: str = "") -> None:
    Path("in.txt").write_text(content)
    Path("demo.yaml").write_text(LINES.format(file="in.txt") + more)


# validate


def test_valid_file_is_called_so(cli: CommandLine) -> None:
    lines_file()
    assert cli.ok("connect", "validate", "demo.yaml").lines == ["demo.yaml: lines is valid"]


def test_typo_is_found_without_a_cluster(cli: CommandLine) -> None:
    lines_file(more="    batch.sise: 5\n")
    ended = cli.run("connect", "validate", "demo.yaml")
    assert ended.status == 5
    assert ended.lines == ["demo.yaml: lines: unknown setting batch.sise: did you mean batch.size?"]
    assert "1 error" in ended.stderr


def test_each_wrong_setting_is_one_object_of_json(cli: CommandLine) -> None:
    lines_file(more="    batch.size: many\n    tasks.max: 0\n")
    ended = cli.run("connect", "validate", "demo.yaml", "--json")
    assert ended.status == 5
    found = {each["setting"]: each for each in ended.objects}
    assert {"batch.size", "tasks.max"} <= set(found)
    assert found["batch.size"]["connector"] == "lines"
    assert "many" in found["batch.size"]["error"]


def test_unknown_class_is_said_with_those_that_exist(cli: CommandLine) -> None:
    Path("demo.json").write_text('{"name": "x", "config": {"connector.class": "FlieSource"}}')
    ended = cli.run("connect", "validate", "demo.json")
    assert ended.status == 5
    assert "FlieSource" in ended.lines[0]
    assert "FileSource" in ended.lines[0]


def test_missing_class_is_a_wrong_setting(cli: CommandLine) -> None:
    Path("x.properties").write_text("name=x\ntopics=a\n")
    ended = cli.run("connect", "validate", "x.properties")
    assert ended.status == 5
    assert "connector.class" in ended.lines[0]


def test_secret_that_is_missing_here_is_no_error(cli: CommandLine) -> None:
    lines_file(more="    batch.size: ${env:NO_SUCH_VARIABLE_HERE}\n")
    ended = cli.ok("connect", "validate", "demo.yaml")
    assert "NO_SUCH_VARIABLE_HERE" in ended.stderr
    assert "not checked" in ended.stderr


def test_secret_that_is_there_is_checked_and_not_shown(cli: CommandLine) -> None:
    cli.environ["THE_SIZE"] = "none-of-your-business"
    lines_file(more="    batch.size: ${env:THE_SIZE}\n")
    ended = cli.run("connect", "validate", "demo.yaml")
    assert ended.status == 5
    assert "batch.size" in ended.lines[0]
    assert "none-of-your-business" not in ended.stdout.decode() + ended.stderr


def test_file_that_is_missing_is_not_found(cli: CommandLine) -> None:
    assert cli.run("connect", "validate", "no.yaml").status == 3


# preview of sources


def test_preview_shows_what_a_source_would_write_without_a_cluster(cli: CommandLine) -> None:
    lines_file()
    # A port that no cluster has: nothing was ever stored.
    ended = cli.ok("connect", "preview", "demo.yaml", "--max", "2", "--from-beginning")
    assert ended.lines == ['lines  key null  value "first"', 'lines  key null  value "second"']
    assert not Path(".strandline").exists()


def test_preview_shows_transforms_and_what_they_drop(cli: CommandLine) -> None:
    lines_file(
        "keep\n\n",
        "    transforms: wrap\n"
        "    transforms.wrap.type: org.apache.kafka.connect.transforms.HoistField$Value\n"
        "    transforms.wrap.field: line\n"
        "    value.converter: JsonConverter\n"
        "    value.converter.schemas.enable: false\n",
    )
    first = cli.ok("connect", "preview", "demo.yaml", "--from-beginning", "--json").objects[0]
    assert first["topic"] == "lines"
    assert first["value"] == '{"line":"keep"}'


def test_preview_shows_a_record_that_cannot_be_converted_with_its_error(cli: CommandLine) -> None:
    lines_file("text\n", "    value.converter: IntegerConverter\n")
    ended = cli.ok("connect", "preview", "demo.yaml", "--from-beginning")
    assert len(ended.lines) == 1
    assert ended.lines[0].startswith("record 1 for lines  bad: converting the value")


def test_preview_leaves_a_source_that_waits(cli: CommandLine) -> None:
    lines_file("only\n")
    Path("demo.yaml").write_text(Path("demo.yaml").read_text().replace("follow: false", "follow: true"))
    ended = cli.ok("connect", "preview", "demo.yaml", "--from-beginning", "--timeout", "0.5")
    assert ended.lines == ['lines  key null  value "only"']
    assert "nothing more within 0.5 s" in ended.stderr


def test_preview_of_a_broken_source_fails_with_its_sentence(cli: CommandLine) -> None:
    lines_file()
    Path("in.txt").unlink()
    ended = cli.run("connect", "preview", "demo.yaml", "--from-beginning")
    assert ended.status == 1
    assert "in.txt" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_preview_of_several_connectors_wants_a_name(cli: CommandLine) -> None:
    lines_file(
        more="  other:\n    connector.class: FileSource\n    file: in.txt\n    topic: others\n    follow: false\n"
    )
    assert cli.run("connect", "preview", "demo.yaml").status == 2
    wrong = cli.run("connect", "preview", "demo.yaml", "--name", "othr")
    assert wrong.status == 3
    assert "did you mean 'other'?" in wrong.stderr
    ended = cli.ok("connect", "preview", "demo.yaml", "--name", "other", "--from-beginning", "-n", "1")
    assert ended.lines == ['others  key null  value "first"']


# plugins


def test_plugins_are_listed_with_their_kind(cli: CommandLine) -> None:
    found = {each["name"]: each for each in cli.ok("connect", "plugins", "--json").objects}
    assert found["FileSource"]["kind"] == "source"
    assert found["FileSink"]["kind"] == "sink"
    assert all(each["about"] or each["missing"] for each in found.values())


def test_settings_of_a_plugin_have_type_default_and_meaning(cli: CommandLine) -> None:
    found = {each["name"]: each for each in cli.ok("connect", "plugins", "FileSource", "--json").objects}
    assert found["file"]["required"] is True
    assert found["batch.size"]["default_value"] == "2000"
    assert "errors.tolerance" not in found
    everything = cli.ok("connect", "plugins", "FileSource", "--all", "--json").objects
    assert "errors.tolerance" in {each["name"] for each in everything}
    assert "SETTING" in cli.ok("connect", "plugins", "FileSource").lines[0]


def test_settings_of_a_transform_are_shown_too(cli: CommandLine) -> None:
    ended = cli.ok("connect", "plugins", "org.apache.kafka.connect.transforms.HoistField$Value")
    assert any(line.startswith("field") for line in ended.lines)


def test_unknown_plugin_is_not_found(cli: CommandLine) -> None:
    ended = cli.run("connect", "plugins", "FileSurce")
    assert ended.status == 3
    assert "did you mean 'FileSource'?" in ended.stderr


# scaffold


def test_scaffold_never_overwrites(cli: CommandLine) -> None:
    cli.ok("connect", "scaffold", "stock-prices")
    mine = Path("stock-prices/stock_prices.py")
    mine.write_text("mine")
    ended = cli.run("connect", "scaffold", "stock-prices")
    assert ended.status == 1
    assert "exists already" in ended.stderr
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["json", "class", "9lives", "ä", "../out", "a/b", "strandline", "order-sink"])
def test_scaffold_refuses_names_that_cannot_be_a_module(name: str) -> None:
    with pytest.raises(UsageFailed):
        names_of(name, "source")


def test_names_of_a_scaffold() -> None:
    assert names_of("stockPrices", "source") == {
        "project": "stock-prices",
        "module": "stock_prices",
        "class": "StockPricesSource",
    }
    assert names_of("order-sink", "sink")["class"] == "OrderSink"


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_scaffolded_project_is_valid_at_once(cli: CommandLine, kind: str) -> None:
    cli.ok("connect", "scaffold", "demo-thing", "--kind", kind, "--dir", "made")
    command = [sys.executable, "-m", "strandline", "connect", "validate", "demo_thing.yaml"]
    ended = subprocess.run(command, cwd="made", capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_test_of_a_scaffolded_project_passes(cli: CommandLine, kind: str) -> None:
    # The file has the name of the connector's group, were it not for `-demo`.
    cli.ok("connect", "scaffold", "tally", "--kind", kind)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    ended = subprocess.run(command, cwd="tally", capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout


# pure parts


def test_changes_name_each_setting_and_no_password() -> None:
    before = {"name": "x", "a": "1", "b": "2", "connection.password": "[hidden]"}
    after = {"name": "x", "a": "1", "b": "3", "c": "4", "connection.password": "secret", "api.token": "t0p"}
    lines = changes(before, after)
    assert lines == [
        "api.token: [hidden]",
        "b: 2 becomes 3",
        "c: 4",
        "connection.password: set again, because the worker does not show it",
    ]
    assert changes({}, {"catalog.s3.access-key": "t0p"}) == ["catalog.s3.access-key: [hidden]"]
    assert changes({"a": "1"}, {}) == ["a: 1 is taken away"]
    assert changes(before, before) == []


def test_values_of_connectors_become_json() -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert value_json({"d": Decimal("1.10"), "t": at, "b": b"\x00\xff", "n": [1, None, float("inf")]}) == {
        "d": "1.10",
        "t": "2026-01-02T00:00:00+00:00",
        "b": "AP8=",
        "n": [1, None, "inf"],
    }
