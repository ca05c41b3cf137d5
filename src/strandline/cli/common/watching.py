"""`--watch`: the same look again and again, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer

from strandline.cli.common.failures import CommandFailed, Interrupted
from strandline.cli.common.output import Output
from strandline.cli.tree import tell

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.2, help="How often --watch looks.")]
EVERY_S_DEFAULT = 2.0

_TO_THE_TOP = "\033[H\033[2J"


def watch(output: Output, look: Callable[[], None], *, every_s: float) -> None:
    """Repeat until Ctrl-C, and raise the failure of the last look if there was one; every failed look is printed."""
    last: CommandFailed | None = None
    try:
        while True:
            if output.is_terminal and not output.as_json:
                # With the first word of what comes: while the cluster is asked, the screen stays as it was.
                output.before_next = _TO_THE_TOP.encode()
            try:
                look()
                last = None
            except CommandFailed as failure:
                last = failure
                output.write(b"")
                output.flush()
                tell(failure)
            if not output.is_terminal and not output.as_json:
                output.line("")
            output.flush()
            time.sleep(every_s)
    except Interrupted:
        if last is not None:
            raise last from None
