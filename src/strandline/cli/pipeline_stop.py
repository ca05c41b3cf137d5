"""`strandline pipeline stop`."""

from __future__ import annotations

from strandline.cli.failures import CommandFailed


def stop() -> None:
    """Stop a pipeline."""
    raise CommandFailed("`strandline pipeline stop` is not there yet")
