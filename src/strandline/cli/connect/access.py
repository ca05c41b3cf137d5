"""Options that the commands about connectors share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

URL_DEFAULT: Final = "http://127.0.0.1:8083"
WorkerUrl = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="STRANDLINE_CONNECT_URL",
        help="Any worker of the Connect cluster; a name and password go before its host: https://me:secret@host:8083.",
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar="STRANDLINE_CONNECT_CA",
        help="Certificates to check the worker's with, in PEM; by default those of the system.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file", metavar="FILE", envvar="STRANDLINE_CONNECT_TOKEN_FILE", help="Log in with the token in a file."
    ),
]
ConnectorName = Annotated[str, typer.Argument(metavar="NAME", help="The connector.")]
