"""`strandline view get`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def get() -> None:
    """Show the row of a key."""
    raise CommandFailed("`strandline view get` is not there yet")
