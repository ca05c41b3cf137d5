"""The typer face of `serve`: its help and its complaints. See `serve` for the way a node really starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.node import serve as plain

BROKERS_MAX = 256


def serve(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the logs live; default: log.dirs of --config.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Where clients connect; default 127.0.0.1:9092, or as --config says."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", exists=True, dir_okay=False, help="A server.properties file."),
    ] = None,
    brokers: Annotated[
        int, typer.Option("--brokers", metavar="N", min=1, max=BROKERS_MAX, help="So many broker processes.")
    ] = 1,
    overrides: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A broker property; wins over the file. May be repeated."),
    ] = None,
) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    Prints one line, `ready HOST:PORT`, when clients can connect. No config file is needed: an empty directory is
    formatted as a cluster of one. A node of a cluster has a --config with process.roles, node.id and its controllers,
    and a directory made by `strandline format`. With --brokers N there are so many processes, at the port and those
    after it, for the cores of one machine.
    """
    if data is None and config is None:
        raise UsageFailed("say where the logs live: --data DIR, or --config FILE with log.dirs")
    options = plain.ServeOptions(data, listen, config, key_values(overrides, option="-X"))
    if brokers > 1:
        from strandline.cli.node.serve_brokers import run_brokers

        raise typer.Exit(run_brokers(brokers, data=data, listen=listen, config=config, overrides=options.overrides))
    raise typer.Exit(plain.run(options))
