"""What holds for every command, without a broker."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import CommandLine

from strandline._twins import is_compiled
from strandline.cli import command_names, main, tree
from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import Unreachable
from strandline.cli.common.options import with_ports
from strandline.cli.node.serve import ServeOptions, parse_plain
from strandline.cli.records import reading
from strandline.cli.records.reading import Patience

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def test_help_names_every_command(lonely_cli: CommandLine) -> None:
    shown = lonely_cli.ok("--help").stdout.decode()
    assert "..." not in shown.split("Commands:")[1], "no line is cut"
    for name in tree.COMMANDS:
        assert f"  {name} " in shown
    for name in command_names():
        assert lonely_cli.ok(*name.split(), "--help").stdout


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from strandline.cli import main; main(['--help']); "
        "print([m for m in ('rich', 'confluent_kafka', 'numpy', 'asyncio', 'strandline.broker') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert shown.stdout.splitlines()[-1] == "[]", shown.stderr


def test_serve_does_not_pay_for_typer() -> None:
    program = (
        "import sys; from strandline.cli.node import serve; "
        "serve.parse_plain(['--data', 'd']); print('typer' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert shown.stdout == "False\n"


def test_version_names_the_compiled_twin_and_the_loop(lonely_cli: CommandLine) -> None:
    facts = dict(line.rsplit(maxsplit=1) for line in lonely_cli.ok("--version").lines if "(" not in line)
    assert facts["hot path"] == ("compiled" if is_compiled() else "plain")
    assert facts["event loop"] in ("uvloop", "asyncio")
    assert facts["strandline"]


def test_docs_name_every_command_and_option() -> None:
    text = DOCS.read_text()
    for name in command_names():
        assert f"## strandline {name}\n" in text
    missing = [f"{path} {option}" for path, option in _options(_root()) if f"`{option}" not in text]
    assert missing == []


def _root() -> Any:
    return typer.main.get_command(tree.build([], load_all=True))


def _options(command: Any, path: str = "") -> list[tuple[str, str]]:
    found = [(path, option) for parameter in command.params for option in parameter.opts if option.startswith("-")]
    for name, child in getattr(command, "commands", {}).items():
        found += _options(child, f"{path} {name}".strip())
    return found


def test_unreachable_is_4_and_says_what_to_do(lonely_cli: CommandLine) -> None:
    with socket.socket() as bound:
        # Bound but not listening: the port is ours, and every connection is refused.
        bound.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{bound.getsockname()[1]}"
        for command in (["topic", "list"], ["consume", "x"], ["produce", "x"]):
            ended = lonely_cli.run(*command, "-b", server)
            assert ended.status == 4
            assert f"cannot reach {server}" in ended.stderr
            assert "strandline dev" in ended.stderr
            assert "Traceback" not in ended.stderr


def test_a_server_that_never_answers_is_4(lonely_cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = lonely_cli.run("topic", "list", "-b", server, "--timeout", "1")
    assert ended.status == 4
    assert f"cannot reach {server}" in ended.stderr


def test_a_server_that_is_no_address_is_2(lonely_cli: CommandLine) -> None:
    assert lonely_cli.run("topic", "list", "-b", "nowhere:port").status == 2


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--data", "d"], ServeOptions(Path("d"))),
        (["--data=d", "--listen=[::1]:0"], ServeOptions(Path("d"), "[::1]:0")),
        (["-X", "a=b=c", "--data", "d", "-Xe=", "-X", "a=2"], ServeOptions(Path("d"), overrides={"a": "2", "e": ""})),
        ([], None),
        (["--help"], None),
        (["--data"], None),
        (["--data", "d", "--port", "1"], None),
        (["--data", "d", "-X", "nonsense"], None),
        (["--data", "d", "--config", "no-such-file"], None),
        (["--data", "d", "extra"], None),
    ],
)
def test_serve_reads_its_options_or_leaves_them_to_typer(arguments: list[str], options: ServeOptions | None) -> None:
    assert parse_plain(arguments) == options


@pytest.mark.parametrize(
    "arguments",
    [[], ["--data"], ["--data", "d", "--config", "no-such-file"], ["--data", "d", "-X", "nonsense"], ["--x"]],
)
def test_serve_explains_wrong_usage(lonely_cli: CommandLine, arguments: list[str]) -> None:
    ended = lonely_cli.run("serve", *arguments)
    assert ended.status == 2
    assert ended.stderr


def test_patience_ends_only_a_reading_without_progress() -> None:
    cluster = Cluster("127.0.0.1:1", {}, timeout_s=0.0)
    Patience(cluster, follow=False).check(progress=True)
    Patience(cluster, follow=True).check(progress=False)
    with pytest.raises(Unreachable, match="sent nothing"):
        Patience(cluster, follow=False).check(progress=False)


def test_who_follows_is_told_that_the_cluster_is_away_and_that_it_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "KNOCK_EVERY_S", -1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    patience = Patience(Cluster(f"127.0.0.1:{port}", {}), follow=True)
    for _ in range(2):
        patience.check(progress=False)
    assert capsys.readouterr().err == (
        f"127.0.0.1:{port} does not answer (connection refused); waiting for it, Ctrl-C ends\n"
    )
    patience.check(progress=True)
    assert capsys.readouterr().err == f"127.0.0.1:{port} answers again\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["version"], ["--version"]),
        (["status", "--json"], ["cluster", "status", "--json"]),
        (["topic", "ls", "-b", "h"], ["topic", "list", "-b", "h"]),
        (["group", "rm", "billing"], ["group", "delete", "billing"]),
        (["produce", "ls"], ["produce", "ls"]),
    ],
)
def test_words_that_people_type(typed: list[str], meant: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(tree, "build", lambda arguments: lambda args, prog_name: called.append(args))
    tree.run(typed)
    assert called == [meant]


@pytest.mark.parametrize(
    ("said", "servers"),
    [
        ("log.example", "log.example:9092"),
        ("a:1, b", "a:1,b:9092"),
        ("[::1],PLAINTEXT://c", "[::1]:9092,PLAINTEXT://c:9092"),
        ("[::1]:7", "[::1]:7"),
    ],
)
def test_a_host_without_a_port_has_kafkas(said: str, servers: str) -> None:
    assert with_ports(said) == servers


def test_ctrl_c_while_modules_are_loaded_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(tree, "run", interrupted)
    assert main(["topic", "list"]) == 130
