"""`strandline pipeline rebuild`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def rebuild() -> None:
    """Run a new version from the beginning, then switch to it."""
    raise CommandFailed("`strandline pipeline rebuild` is not there yet")
