"""The typer face of `serve`: its help and its complaints. See `serve` for the way a node really starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli import serve as plain
from strandline.cli.options import key_values


def serve(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the logs live; formatted if empty.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.")
    ] = plain.LISTEN_DEFAULT,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", exists=True, dir_okay=False, help="A server.properties file."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A broker property; wins over the file. May be repeated."),
    ] = None,
) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    Prints one line, `ready HOST:PORT`, when clients can connect. No config file is needed: an empty directory is
    formatted as a cluster of one.
    """
    options = plain.ServeOptions(data, listen, config, key_values(overrides, option="-X"))
    raise typer.Exit(plain.run(options))
