"""The modules that have a compiled twin, and which of the two is imported.

`hatch_build.py` lets Cython compile the text of these modules, with the C types of the `.pxd` files beside them, to
extensions that shadow the text on import. Everything runs without them, slower.

`NATIVE` modules have no plain text; what imports them goes on without them. They are chosen with the others.

Some extensions know the memory layout of classes in others, so either all are used or none. In a source tree none is
used once a text is newer than its extension: what a developer edits is what runs. `STRANDLINE_COMPILED=0` uses none
anywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from typing import Final

PACKAGE: Final = "strandline"
COMPILED: Final = (
    "broker.coordinating.pending_appends",
    "broker.network.connection",
    "broker.network.dispatch",
    "broker.network.socket_transport",
    "codec.columns._check",
    "codec.columns._clean",
    "codec.columns._scan",
    "codec.columns._validate",
    "codec.fetch",
    "codec.primitives",
    "codec.produce",
    "codec.record_batch",
    "codec.wire",
    "coordinators.offsets.plain_commit",
    "handlers.k00_produce",
    "handlers.support.fetching.fetch_attempt",
    "handlers.support.plain_commits",
    "log.disk",
    "log.partition_log",
    "log.rolling",
    "log.segment.log_slice",
    "log.segment.segment",
    "partition.fetch_session",
    "partition.partition",
    "partition.producers",
    "partition.reencoding",
    "schemas.arrow._decode",
)
"""Names below `PACKAGE`."""
NATIVE: Final = ("runtime._sync",) if sys.platform == "linux" else ()

_ROOT: Final = os.path.dirname(os.path.abspath(__file__))


class PlainText:
    """An import hook that finds the text of a module that has a compiled twin, and hides those without a text."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name.removeprefix(f"{PACKAGE}.") in NATIVE:
            raise ModuleNotFoundError(f"{name} is not used without the compiled modules", name=name)
        if name.removeprefix(f"{PACKAGE}.") not in COMPILED:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, _path(name.removeprefix(f"{PACKAGE}."), ".py"))


def choose() -> None:
    """Decide, before any of the modules is imported, which twins are used."""
    is_source_tree = os.path.exists(os.path.join(_ROOT, "..", "..", "pyproject.toml"))
    if os.environ.get("STRANDLINE_COMPILED") == "0" or (is_source_tree and _is_stale()):
        sys.meta_path.insert(0, PlainText)


def is_compiled() -> bool:
    """Return whether this process uses the extensions."""
    return PlainText not in sys.meta_path and os.path.exists(_path(COMPILED[0], EXTENSION_SUFFIXES[0]))


def _is_stale() -> bool:
    """Return whether a text, or the types beside it, changed after its extension was made."""
    for name in COMPILED + NATIVE:
        try:
            made_at = os.stat(_path(name, EXTENSION_SUFFIXES[0])).st_mtime
            if any(os.stat(_path(name, suffix)).st_mtime > made_at for suffix in sources(name)):
                return True
        except FileNotFoundError:
            return True
    return False


def sources(name: str) -> tuple[str, ...]:
    """Return the suffixes of the files that a module is compiled from, its text first."""
    return (".pyx",) if name in NATIVE else (".py", ".pxd")


def _path(name: str, suffix: str) -> str:
    return os.path.join(_ROOT, *name.split(".")) + suffix
