"""The checksum is that of the package `crc32c`, whose `__init__` is not run for it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.machinery import PathFinder

import pytest

from strandline.codec import checksum

_COSTLY = ("argparse", "crc32c", "importlib.metadata")


@pytest.mark.parametrize("is_found", [True, False])
def test_the_known_value(is_found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    package = import_module("crc32c")
    with monkeypatch.context() as patched:
        if not is_found:
            patched.setattr(PathFinder, "find_spec", lambda *_: None)
        extension = checksum._extension()
    crc32c = extension.crc32c
    assert crc32c(b"123456789") == crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert (extension is package) is not is_found


def test_a_node_imports_nothing_costly_for_it() -> None:
    code = f"import sys, strandline.broker.node; print([each for each in {_COSTLY} if each in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
