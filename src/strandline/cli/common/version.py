"""What `--version` says: the facts that a bug report needs."""

from __future__ import annotations

import platform
from importlib.util import find_spec

from strandline._twins import is_compiled
from strandline._version import __version__


def version_text() -> str:
    event_loop = "uvloop" if find_spec("uvloop") else "asyncio"
    return "\n".join(
        [
            f"strandline {__version__}",
            f"python     {platform.python_version()} ({platform.python_implementation()}, {platform.machine()})",
            f"hot path   {'compiled' if is_compiled() else 'plain'}",
            f"event loop {event_loop}",
        ]
    )
