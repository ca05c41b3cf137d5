"""`strandline pipeline status`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def status() -> None:
    """How far a pipeline is."""
    raise CommandFailed("`strandline pipeline status` is not there yet")
