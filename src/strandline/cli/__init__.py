"""The command line: `strandline` and its short name `strand`.

Every command except `serve`, `dev` and `log` is a plain Kafka client and works with any Kafka cluster. `doctor` also
checks this machine. Data goes to stdout, messages to stderr; every command has `--json`; exit codes are in
`common.failures`. A command's module is loaded only when it is called, so `--help` is fast and `serve` never imports
typer. `main` is the entry point; `command_names` lists every command for the test of docs/cli.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["command_names", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        # Before a command has taken the signal over: while modules are loaded.
        from strandline.cli.common.failures import ExitCode

        return ExitCode.INTERRUPTED


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] == "serve":
        from strandline.cli.node import serve

        # A node is started far more often than its help is read. What the plain parser does not understand (and
        # --help) falls through to typer, which knows how to explain itself.
        options = serve.parse_plain(arguments[1:])
        if options is not None:
            return serve.run(options)

    from strandline.cli import tree

    return tree.run(arguments)


def command_names() -> list[str]:
    """Every command as a user types it, for example `topic create`."""
    from strandline.cli import tree

    return tree.command_names()
