"""`strandline serve`: run a node in this process until SIGTERM or Ctrl-C.

The plain parser below exists so that a node starts without importing typer; it knows exactly the options that
`serve` declares and gives up on anything else, which typer then explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class ServeOptions:
    """`data` and `listen` are None where the config file, or the default, says where."""

    data: Path | None = None
    listen: str | None = None
    config: Path | None = None
    overrides: dict[str, str] = field(default_factory=dict)


def parse_plain(arguments: Sequence[str]) -> ServeOptions | None:
    """Well-formed arguments as options; None for everything else."""
    options = ServeOptions()
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if argument.startswith("-X") and argument != "-X":
            name, equals, value = "-X", "=", argument[2:]
        if name not in ("--data", "--listen", "--config", "-X"):
            return None
        if not equals:
            following = next(remaining, None)
            if following is None:
                return None
            value = following
        match name:
            case "--data":
                options.data = Path(value)
            case "--listen":
                options.listen = value
            case "--config":
                options.config = Path(value)
            case "-X":
                key, equals, setting = value.partition("=")
                if not key or not equals:
                    return None
                options.overrides[key] = setting
    if options.config is not None and not options.config.is_file():
        return None
    # Without a file that may name one, --data is required, so that no log turns up in the working directory by chance.
    return options if options.data is not None or options.config is not None else None


def run(options: ServeOptions) -> int:
    # The broker is the one package with sockets; it is imported only by the command that runs one.
    from strandline.broker.main import serve as serve_node

    return serve_node(options.data, options.listen, options.config, options.overrides)
