"""CRC-32C: the extension of the package `crc32c`, without the rest of that package.

Its `__init__` looks through the metadata of all installed distributions and makes a command line. A node that starts
would pay for that with 2.5 MB and a tenth of its time.
"""

from __future__ import annotations

from importlib import import_module, util
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["crc32c"]


def _extension() -> ModuleType:
    package = util.find_spec("crc32c")
    found = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not found or found.loader is None:
        # Another release may have its parts elsewhere.
        return import_module("crc32c")
    extension = util.module_from_spec(found)
    found.loader.exec_module(extension)
    return extension


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _extension().crc32c
