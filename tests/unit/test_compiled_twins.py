"""The build never needs a compiler, a stale extension is never used, and both twins are the same module."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

import strandline
from strandline._twins import COMPILED, NATIVE, is_compiled

PACKAGE = Path(strandline.__file__).parent
ROOT = PACKAGE.parents[1]
NEEDS_TWINS = pytest.mark.skipif(not is_compiled(), reason="no compiled twins here: no C compiler at installation")
ORIGINS = "import sys, strandline.partition.partition as module; print(module.__file__)"


@pytest.fixture
def hatch_build() -> ModuleType:
    pytest.importorskip("hatchling", reason="the build backend is not installed here")
    path = ROOT / "hatch_build.py"
    if not path.exists():
        pytest.skip("this is an installed package, not a source tree")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_of_c_types_belongs_to_a_compiled_module() -> None:
    typed = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.pxd")}
    assert typed == {*COMPILED}


@NEEDS_TWINS
@pytest.mark.parametrize("name", COMPILED + NATIVE)
def test_the_compiled_twin_was_made_from_the_present_text(hatch_build: ModuleType, name: str) -> None:
    twin = import_module(f"strandline.{name}")
    assert twin.__file__ is not None
    assert twin.__file__.endswith(EXTENSION_SUFFIXES[0])
    digest = hatch_build.source_digest(f"strandline.{name}")
    assert digest == twin.SOURCE_DIGEST, "run `python hatch_build.py` to compile it again"


@pytest.mark.slow
def test_without_a_compiler_the_hook_gives_a_reason_and_no_more(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cython translates every module before a compiler is missed, and one that needs no other is enough here.
    one = "strandline.codec.wire"
    monkeypatch.setattr(hatch_build, "MODULES", {one: hatch_build.MODULES[one]})
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    with pytest.raises(hatch_build.CannotCompile, match="no-such-compiler"):
        hatch_build.compile_all(tmp_path / "build")


def test_without_cython_the_hook_gives_a_reason_and_no_more(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Cython.Build", None)
    with pytest.raises(hatch_build.CannotCompile, match="Cython"):
        hatch_build.compile_all(tmp_path / "build")


def origin(source: Path, **environment: str) -> str:
    """Return the file from which another process imports a module that has a twin."""
    run = subprocess.run(
        [sys.executable, "-c", ORIGINS],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source), **environment},
    )
    return run.stdout.strip()


@NEEDS_TWINS
def test_a_setting_chooses_the_plain_text() -> None:
    assert origin(PACKAGE.parent).endswith(EXTENSION_SUFFIXES[0])
    assert origin(PACKAGE.parent, STRANDLINE_COMPILED="0").endswith("partition.py")


@NEEDS_TWINS
def test_a_setting_hides_what_has_no_plain_text() -> None:
    script = "from strandline.runtime import runtime; print(runtime.SyncThreads)"
    for setting, expected in (("1", "<class"), ("0", "None")):
        run = subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "STRANDLINE_COMPILED": setting},
        )
        assert run.stdout.startswith(expected if NATIVE else "None")


@pytest.mark.lengthy("starts processes")
@NEEDS_TWINS
@pytest.mark.parametrize("edited", ["partition/partition.py", "log/segment/segment.pxd", "runtime/_sync.pyx"])
def test_a_text_that_is_newer_than_its_extension_is_what_runs(tmp_path: Path, edited: str) -> None:
    tree = tmp_path / "src"
    shutil.copytree(PACKAGE, tree / "strandline", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").touch()
    assert origin(tree).endswith(EXTENSION_SUFFIXES[0])
    # One of them is enough: the extensions know each other's classes.
    extension = next((tree / "strandline" / edited).parent.glob(f"{Path(edited).stem}.*.so"))
    made_at = extension.stat().st_mtime
    os.utime(tree / "strandline" / edited, (made_at + 1, made_at + 1))
    assert origin(tree).endswith("partition.py")


def test_importing_the_decoder_imports_nothing_heavy() -> None:
    script = (
        "import sys; import strandline.codec.columns as columns;"
        "columns.decode_batch(columns.encode_batch([columns.Record(value=b'x')]));"
        "print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    loaded = set(run.stdout.split())
    assert loaded.isdisjoint({"numpy", "pyarrow", "numba", "Cython", "cramjam", "lz4", "zstandard", "kio"})
