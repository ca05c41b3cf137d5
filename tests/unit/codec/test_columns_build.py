"""The build never needs a compiler, a stale extension is noticed, and nothing heavy is imported before its time."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.unit.codec.columns_cases import COMPILED, SCAN_SOURCE

from strandline.codec.columns import _check, _clean, _scan

ROOT = SCAN_SOURCE.parents[4]


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


@pytest.mark.skipif(COMPILED is None, reason="no compiled decoder here: no C compiler at installation")
@pytest.mark.parametrize("twin", [_scan, _check, _clean])
def test_the_compiled_twin_was_made_from_the_present_text(hatch_build: ModuleType, twin: ModuleType) -> None:
    name = twin.__name__.rpartition(".")[2]
    assert hatch_build.source_digest(name) == twin.SOURCE_DIGEST, "run `python hatch_build.py` to compile it again"


@pytest.mark.lengthy("translates all Cython units before the compiler is missed")
def test_without_a_compiler_the_hook_gives_a_reason_and_no_more(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    with pytest.raises(hatch_build.CannotCompile, match="no-such-compiler"):
        hatch_build.compile_all(tmp_path / "build")


def test_without_cython_the_hook_gives_a_reason_and_no_more(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Cython.Build", None)
    with pytest.raises(hatch_build.CannotCompile, match="Cython"):
        hatch_build.compile_all(tmp_path / "build")


def test_importing_the_decoder_imports_nothing_heavy() -> None:
    script = (
        "import sys; import strandline.codec.columns as columns;"
        "columns.decode_batch(columns.encode_batch([columns.Record(value=b'x')]));"
        "print(*sys.modules)"
    )
    source = str(SCAN_SOURCE.parents[3])
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {script}"],
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = set(run.stdout.split())
    assert loaded.isdisjoint({"numpy", "pyarrow", "numba", "Cython", "cramjam", "lz4", "zstandard", "kio"})
