"""`strandline view create`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def create() -> None:
    """Make a compacted topic a view."""
    raise CommandFailed("`strandline view create` is not there yet")
