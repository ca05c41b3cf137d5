"""`--command-config FILE`: the settings of a Kafka client, for every command that talks to a cluster.

A password on the command line would be seen in `ps` and in the history of the shell; a file has its own permissions.
Kafka's tools ignore names that they do not know, and so do commands: of the file they take what is about security, and
`client.id`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.key_values import key_values

ENVIRONMENT: Final = "STRANDLINE_COMMAND_CONFIG"
_PARAMETER: Final = "command_config"
_file: ContextVar[str | None] = ContextVar(_PARAMETER, default=None)
_Option = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar=ENVIRONMENT,
        help="A properties file with the security settings of a Kafka client.",
    ),
]


def with_command_config(command: Callable[..., object]) -> Callable[..., object]:
    """Return a command that has the option, if it talks to a cluster; other commands as they are."""
    signature = inspect.signature(command, eval_str=True)
    if "bootstrap" not in signature.parameters:
        return command

    @functools.wraps(command)
    def called(**given: Any) -> object:
        chosen = _file.set(given.pop(_PARAMETER, None))
        try:
            return command(**given)
        finally:
            _file.reset(chosen)

    option = inspect.Parameter(_PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Option)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    called.__signature__ = signature.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in (*parameters, option)}
    return called


def choose_file(given: Mapping[str, Any]) -> None:
    """Use the file of a command line that is still being typed; `given` are its options so far."""
    _file.set(given.get(_PARAMETER) or os.environ.get(ENVIRONMENT))


def client_properties(pairs: list[str] | None) -> dict[str, str]:
    """Return the settings of the file, overruled by those of -X."""
    location = _file.get()
    return (_read(location) if location else {}) | key_values(pairs, option="-X")


def _read(location: str) -> dict[str, str]:
    from strandline.client.security import is_security_name
    from strandline.config.properties import parse_properties

    try:
        content = Path(location).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no text"
        raise UsageFailed(f"--command-config {location} cannot be read: {why}") from None
    return {
        name: value
        for name, value in parse_properties(content).items()
        if is_security_name(name) or name == "client.id"
    }
