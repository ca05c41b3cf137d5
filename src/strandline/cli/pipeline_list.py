"""`strandline pipeline list`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def list_pipelines() -> None:
    """List pipelines."""
    raise CommandFailed("`strandline pipeline list` is not there yet")
