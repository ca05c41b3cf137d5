"""`strandline view list`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def list_views() -> None:
    """List views."""
    raise CommandFailed("`strandline view list` is not there yet")
