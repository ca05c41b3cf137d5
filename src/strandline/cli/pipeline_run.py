"""`strandline pipeline run`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def run() -> None:
    """Run a pipeline's file."""
    raise CommandFailed("`strandline pipeline run` is not there yet")
