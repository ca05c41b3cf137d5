"""`connect verify` and `connect rebuild` for files, whose lines have no key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.connect.running import wait_until
from tests.connect.test_cli_worker import bootstrap, cli, name, produce, running_sink, url

from strandline.runtime.fault_points import FILE_SWAP_POINTS

__all__ = ["bootstrap", "cli", "name", "url"]

pytestmark = pytest.mark.lengthy("starts a broker and a worker, and runs connectors")
LINES = ["one", "two", "two", "ä" * 300]


def file_sink(cli: CommandLine, name: str, lines: list[str] = LINES) -> str:
    """Run a sink that has written lines. Return its file."""
    return running_sink(
        cli,
        name,
        [(None, each.encode()) for each in lines],
        **{
            "connector.class": "FileSink",
            "file": str(Path("${topic}-${partition}.txt").absolute()),
            "value.converter": "StringConverter",
        },
    )


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_lines_are_counted_and_files_rebuilt(cli: CommandLine, url: str, name: str) -> None:
    file = file_sink(cli, name)
    target, old = Path(f"{name}-0.txt"), Path(f"{name}-0.txt.old_1")
    (same,) = cli.ok("connect", "verify", file, "--json").objects
    assert (same["differences"], same["rows"], same["records"]) == (0, 3, 4)

    text = target.read_text()
    # Of the same size, because the offsets beside the file say how much of it counts.
    damaged = text.replace("one\ntwo\ntwo\n", "one\none\nodd\n")
    target.write_text(damaged)
    (found,) = cli.run("connect", "verify", name, "--json").objects
    assert [found[each] for each in ("different", "missing", "surplus")] == [1, 1, 1]
    assert {each["key"][0] for each in found["first"]} == {"one", "two", "odd"}

    del cli.environ["STRANDLINE_CONNECT_URL"]
    assert "is in use by another task" in cli.run("connect", "rebuild", file, "--yes").stderr
    assert target.read_text() == damaged
    cli.environ["STRANDLINE_CONNECT_URL"] = url
    cli.ok("connect", "rebuild", file, "--discard")
    assert sorted(each.name for each in Path().glob(f"{name}*")) == [target.name, f"{target.name}.offsets"]

    ended = cli.ok("connect", "rebuild", file, "--yes")
    assert "3 rows" in ended.lines[0]
    assert (target.read_text(), old.read_text()) == (text, damaged)
    # The connector goes on in the new file.
    produce(cli.bootstrap or "", name, [(None, b"new")])
    wait_until(lambda: lines_of(target) == [*LINES, "new"], "it goes on")
    cli.ok("connect", "verify", name)
    cli.ok("connect", "rebuild", file, "--drop", "--yes")
    assert sorted(each.name for each in Path().glob(f"{name}*")) == [target.name, f"{target.name}.offsets"]
    cli.ok("connect", "delete", name, "--yes")


@pytest.mark.slow
@pytest.mark.parametrize("point", FILE_SWAP_POINTS)
def test_a_swap_of_files_that_is_killed_is_finished_by_whatever_opens_them(
    cli: CommandLine, name: str, point: str
) -> None:
    file = file_sink(cli, name)
    target = Path(f"{name}-0.txt")
    text = target.read_text()
    cli.ok("connect", "stop", name)
    damaged = "x" * (len(text.encode()) - 1) + "\n"
    target.write_text(damaged)
    command = [sys.executable, "-m", "strandline", "connect", "rebuild", file, "--yes"]
    environ = cli.environ | {"STRANDLINE_FAULT": f"{point}:kill:killed"}
    killed = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    # A reader has one of the two, whole.
    assert target.read_text() == (text if point == "file-swap-replaced" else damaged)
    cli.ok("connect", "resume", name)
    produce(cli.bootstrap or "", name, [(None, b"new")])
    wait_until(lambda: target.read_text().endswith("\nnew\n"), "it goes on")
    if point == "file-swap-kept":
        cli.ok("connect", "rebuild", file, "--yes")
    cli.ok("connect", "verify", file)
    assert lines_of(target) == [*LINES, "new"]
    cli.ok("connect", "delete", name, "--yes")


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "parquet", "partitioner": "field", "partition.fields": "part"},
        pytest.param({"format": "json", "compression": "gzip", "include.metadata": "true"}, marks=pytest.mark.slow),
        pytest.param({"format": "parquet", "rotate.schedule.interval.ms": "100"}, marks=pytest.mark.slow),
    ],
    ids=lambda each: " ".join(each.values()),
)
def test_rows_of_objects_are_counted_and_rebuilt(cli: CommandLine, name: str, settings: dict[str, str]) -> None:
    values = [{"n": each / 2, "part": each % 2, "more": {}, "text": "same" if each % 3 else None} for each in range(20)]
    store = Path("store").absolute()
    sink = {"connector.class": "ObjectSink", "store.url": store.as_uri(), "flush.size": "4", **settings}
    file = running_sink(cli, name, [(None, each) for each in values], **sink)
    (same,) = cli.ok("connect", "verify", file, "--json").objects
    assert (same["differences"], same["rows"], same["records"]) == (0, 20, 20)

    first, *_, last = sorted((store / "topics" / name).rglob(f"{name}+0+*"))
    first.write_bytes(last.read_bytes())
    (found,) = cli.run("connect", "verify", file, "--json").objects
    assert found["missing"] > 0
    assert found["missing"] == found["different"] + found["surplus"]

    # The connector runs meanwhile: it is fenced out, and goes on in the new objects.
    del cli.environ["STRANDLINE_CONNECT_URL"]
    assert "nothing was swapped" in cli.run("connect", "rebuild", file).stderr
    ended = cli.ok("connect", "rebuild", file, "--yes")
    assert "going on with the target of an earlier rebuild" in ended.stderr
    pointer = json.loads((store / "topics" / "_strandline" / name / "current.json").read_text())
    assert pointer == {"generation": 1, "topics.dir": f"topics.{name}.1"}
    produce(cli.bootstrap or "", name, [(None, {"n": each, "part": 0}) for each in range(100, 108)])
    wait_until(lambda: committed_rows(cli, name, file) == 28, "it goes on in the new objects")
    assert list((store / "topics" / name).rglob(f"{name}+0+*"))
    cli.ok("connect", "rebuild", file, "--drop", "--yes")
    assert not list((store / "topics" / name).rglob(f"{name}+0+*"))
    cli.ok("connect", "verify", file)


def committed_rows(cli: CommandLine, name: str, file: str) -> int:
    """Return how many rows the objects have, once they are what the topic has up to the committed offsets."""
    ended = cli.run("connect", "verify", file, "--json")
    return 0 if ended.status else int(ended.objects[0]["rows"])
