"""`strandline view query`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def query() -> None:
    """Ask views in SQL."""
    raise CommandFailed("`strandline view query` is not there yet")
