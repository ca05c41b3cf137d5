"""`docs/connect.md` tells the truth: its commands run as they are written, and its tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.clients.broker import shared_broker

from strandline.cli.tree import COMMANDS
from strandline.connect.config import text_of
from strandline.connect.herder.worker_settings import WorkerSettings
from strandline.connect.plugins import BUILT_IN

PAGE = (Path(__file__).parents[2] / "docs" / "connect.md").read_text()
LINES_MAX = 250


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def write_files() -> None:
    """Write what the page shows under the names in its first lines."""
    for text in (*blocks("yaml"), *blocks("python")):
        name = text.splitlines()[0].removeprefix("# ")
        Path(name).write_text(text)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with shared_broker() as bootstrap:
        yield bootstrap


def run(script: str, **environ: str) -> str:
    # The commands of this environment, whichever others there are.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-e", "-c", script],
        env=os.environ | {"PATH": path} | environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, f"{script}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@contextmanager
def worker(bootstrap: str) -> Iterator[str]:
    """Run the worker of the page, at a free port."""
    (command,) = re.findall(r"^(strandline connect serve .*)$", PAGE, re.M)
    arguments = command.replace("localhost:9092", bootstrap).split()[1:]
    process = subprocess.Popen(
        [sys.executable, "-m", "strandline", *arguments, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("ready ").strip()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
def test_commands_of_the_page_run_as_they_are_written(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files()
    first, at_a_worker, own = blocks("sh")
    copied = run(first, STRANDLINE_BOOTSTRAP=bootstrap)
    assert "demo.yaml: lines is valid" in copied
    assert 'orders  key 1  value {"id":1,"item":"pen"}' in copied
    assert "has the 2 rows that 2 records of the topic make" in copied
    printed = run(own, STRANDLINE_BOOTSTRAP=bootstrap)
    assert [line.rpartition(": ")[2] for line in printed.splitlines()] == ["0", "1", "2", "3", "4"]
    with worker(bootstrap) as url:
        shown = run(at_a_worker, STRANDLINE_BOOTSTRAP=bootstrap, STRANDLINE_CONNECT_URL=url)
    assert "lines: created" in shown
    assert "lines is PAUSED" in shown
    assert "lines is deleted" in shown


def test_page_names_every_command() -> None:
    missing = [verb for verb, _, _ in COMMANDS["connect"].verbs if not re.search(rf"`{verb}\b|connect {verb}\b", PAGE)]
    assert not missing


def test_page_has_every_setting_of_a_worker_with_its_default() -> None:
    for option in WorkerSettings.options:
        row = next((line for line in PAGE.splitlines() if line.startswith("|") and f"`{option.name}`" in line), None)
        assert row is not None, option.name
        default = text_of(option.default)
        assert not default or f"`{default}`" in row, f"{option.name} has the default {default}"


def test_page_links_every_connector() -> None:
    missing = [each.name for each in BUILT_IN if each.name not in PAGE]
    assert not missing


def test_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= LINES_MAX
