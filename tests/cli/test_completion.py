"""What a shell offers while a command is typed."""

from __future__ import annotations

import socket

import pytest
from tests.cli.conftest import CommandLine


def completed(cli: CommandLine, *words: str, bootstrap: str | None = None) -> list[str]:
    """What bash would offer for the last of `words`."""
    cli.environ |= {
        "_STRANDLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["strandline", *words]),
        "COMP_CWORD": str(len(words)),
    }
    if bootstrap is not None:
        cli.environ["STRANDLINE_BOOTSTRAP"] = bootstrap
    ended = cli.run()
    assert (ended.status, ended.stderr) == (0, "")
    return [line for line in ended.lines if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("to",), ["topic"]),
        (("topic", "de"), ["describe", "delete"]),
        (("consume", "--fo"), ["--follow", "--format"]),
        (("config", "explain", "flush.mo"), ["flush.mode"]),
        (("topic", "alter", "x", "--config", "retention."), ["retention.bytes=", "retention.ms="]),
        (("topic", "alter", "x", "--unset", "retention."), ["retention.bytes", "retention.ms"]),
        (("config", "set", "flush.mo"), ["flush.mode="]),
    ],
)
def test_commands_options_and_settings(lonely_cli: CommandLine, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(lonely_cli, *words) == offered


@pytest.mark.parametrize(
    "words", [("topic", "describe"), ("topic", "delete", "x"), ("consume",), ("produce",), ("config", "get", "--topic")]
)
def test_topics_of_the_cluster(cli: CommandLine, topic: str, words: tuple[str, ...]) -> None:
    assert completed(cli, *words, topic[:-1]) == [topic]


@pytest.mark.parametrize("verb", ["describe", "members", "reset", "delete", "history"])
def test_groups_of_the_cluster(cli: CommandLine, topic: str, verb: str) -> None:
    cli.ok("group", "reset", f"{topic}-readers", "--topic", topic, "--to-latest", "--yes")
    assert completed(cli, "group", verb, topic) == [f"{topic}-readers"]


def test_no_cluster_is_silence(lonely_cli: CommandLine) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{bound.getsockname()[1]}"
        assert completed(lonely_cli, "topic", "describe", "x", bootstrap=refusing) == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        assert completed(lonely_cli, "topic", "describe", "x", bootstrap=mute) == []
