"""`strandline pipeline explain`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def explain() -> None:
    """Say what a file declares."""
    raise CommandFailed("`strandline pipeline explain` is not there yet")
