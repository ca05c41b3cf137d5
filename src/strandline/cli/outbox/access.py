"""What the commands of `outbox` share: their database and table, and their failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from strandline.cli.common.failures import CommandFailed, Unreachable, UsageFailed

DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="STRANDLINE_DATABASE",
        help="The database: postgresql://user@host/name, a connection string of libpq, or sqlite:///file.",
    ),
]
OutboxTable = Annotated[str, typer.Option("--table", metavar="[SCHEMA.]TABLE", help="The outbox table.")]


@contextmanager
def outbox_errors() -> Iterator[None]:
    """Turn failures of the relay into those of a command."""
    from strandline.connect.failures import ConnectFailed, FencedOut, RetriableFailure

    try:
        yield
    except FencedOut as error:
        raise CommandFailed(str(error), hint="another relay of this table has begun") from None
    except RetriableFailure as error:
        raise Unreachable(str(error), hint="try again when the database and the cluster answer") from None
    except ConnectFailed as error:
        raise CommandFailed(str(error), hint="docs/outbox.md has the table and the settings of the relay") from None


def checked_table(table: str) -> str:
    """Return the name of a table. Raise UsageFailed for what cannot be one."""
    from strandline.outbox.tables import QualifiedTable

    try:
        QualifiedTable.of(table)
    except ValueError as error:
        raise UsageFailed(f"--table: {error}") from None
    return table
