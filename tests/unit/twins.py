"""Modules that run compiled where a compiler was at hand, and as plain Python everywhere: both, for tests of both."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def load_plain(source: Path) -> ModuleType:
    """The module as plain Python, also where the compiled one shadows it."""
    spec = importlib.util.spec_from_file_location(f"strandline.codec.columns.{source.stem}_plain", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_parameters(plain: ModuleType, compiled: ModuleType | None) -> list[object]:
    reason = "not compiled here: no C compiler at installation"
    is_missing = pytest.mark.skipif(compiled is None, reason=reason)
    return [pytest.param(plain, id="python"), pytest.param(compiled, id="cython", marks=is_missing)]
