"""The tree of commands: which module holds which command, and how a run ends.

The table is all that `--help` needs. A command's module is imported only when its name is on the command line; the
others are registered as stubs that carry their one-line help.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Annotated, NoReturn

import typer

from strandline.cli.failures import CommandFailed, ExitCode, Interrupted, PipeClosed
from strandline.cli.output import colours_wanted, silence_stdout


@dataclass(frozen=True)
class Entry:
    """A command (`module:function`) or a noun with verbs."""

    help: str
    target: str = ""
    verbs: tuple[tuple[str, str], ...] = ()


COMMANDS: dict[str, Entry] = {
    "serve": Entry("Run a node.", "serve_command:serve"),
    "dev": Entry("Run a node for development and print what to paste.", "dev:dev"),
    "topic": Entry(
        "Create, list, describe and delete topics.",
        verbs=(
            ("create", "topic:create"),
            ("list", "topic:list_topics"),
            ("describe", "topic:describe"),
            ("delete", "topic:delete"),
        ),
    ),
    "produce": Entry("Write records: lines or JSON, from files or stdin.", "produce:produce"),
    "consume": Entry("Read records: from an offset, a time, the last n; or follow.", "consume:consume"),
    "log": Entry("Look into log files.", verbs=(("dump", "log_dump:dump"),)),
}


def command_names() -> list[str]:
    names = []
    for name, entry in COMMANDS.items():
        names.extend([f"{name} {verb}" for verb, _ in entry.verbs] or [name])
    return names


def run(arguments: list[str]) -> int:
    """Run typer on `arguments` and turn every way to end into an exit code."""
    previous = signal.signal(signal.SIGINT, _interrupt)
    try:
        build(arguments)(args=arguments, prog_name=os.path.basename(sys.argv[0]).replace("__main__.py", "strandline"))
    except SystemExit as ended:
        return _flushed(ended.code if isinstance(ended.code, int) else ExitCode.OK if ended.code is None else 1)
    except CommandFailed as failure:
        tell(failure)
        return _flushed(failure.code)
    except PipeClosed:
        silence_stdout()
        return ExitCode.OK
    except Interrupted:
        return _flushed(ExitCode.INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, previous)
    return _flushed(ExitCode.OK)


def build(arguments: list[str], *, load_all: bool = False) -> typer.Typer:
    """The typer app with the called command loaded and every other one a stub."""
    # A shell that asks for completions names the command in the environment, not in the arguments.
    load_all = load_all or any(name.endswith("_COMPLETE") for name in os.environ)
    called = next((argument for argument in arguments if not argument.startswith("-")), "")
    # Plain help: drawing it with rich would take twice the time of everything else together.
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True, help=_HELP)
    app.callback()(_root)
    for name, entry in COMMANDS.items():
        loaded = load_all or name == called
        if not entry.verbs:
            app.command(name, short_help=entry.help)(_load(entry.target) if loaded else _stub)
            continue
        noun = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=entry.help)
        for verb, target in entry.verbs:
            noun.command(verb)(_load(target) if loaded else _stub)
        app.add_typer(noun, name=name)
    return app


def tell(failure: CommandFailed) -> None:
    red, dim, end = ("\033[31m", "\033[2m", "\033[0m") if colours_wanted(sys.stderr) else ("", "", "")
    print(f"{red}error:{end} {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"{dim}next:{end}  {failure.hint}", file=sys.stderr)


_HELP = """A distributed log that speaks the Kafka protocol.

Data goes to stdout, talk to stderr.
Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 4 unreachable or timed out.
"""


def _print_version(wanted: bool) -> None:
    if wanted:
        from strandline.cli.version import version_text

        typer.echo(version_text())
        raise typer.Exit()


_Version = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_print_version, help="Say what is installed, and stop."),
]


def _root(version: _Version = False) -> None:
    """The callback that carries the options of the root."""


def _load(target: str) -> Callable[..., object]:
    module, function = target.split(":")
    loaded: Callable[..., object] = getattr(import_module(f"strandline.cli.{module}"), function)
    return loaded


def _stub() -> NoReturn:
    raise AssertionError("a stub stands for its help line only and is never called")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    return code
