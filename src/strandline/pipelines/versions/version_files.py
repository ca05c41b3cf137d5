"""The file of a version, as it was: a version that is kept must still run when its file has been edited.

The registry has the text. While the file on disk is the same, that one is used; else the text is written to
`.strandline/versions/<pipeline>/v<n>/` under the file's own name, from which a pipeline may take its own. Modules that
it imports from beside it are not kept: the copy imports those that lie beside the file now.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.loading import BESIDE
from strandline.pipelines.run.local_node import HOME
from strandline.pipelines.versions.state import VersionState

TEXT_BYTES_MAX: Final = 512 * 1024
"""A record of the registry has up to a megabyte, for all versions of a pipeline."""


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def with_file(version: VersionState, file: str) -> VersionState:
    """The version with the text that the file has now. One that is too large is not kept, and must not be changed."""
    content = Path(file).read_bytes()
    text = content.decode(errors="replace") if len(content) <= TEXT_BYTES_MAX else ""
    return replace(version, file=str(Path(file).resolve()), digest=digest_of(content), text=text)


def file_of(version: VersionState, pipeline: str, *, home: Path = HOME) -> str:
    """A file with the text of this version."""
    original = Path(version.file)
    is_there = original.is_file()
    if not version.digest or (is_there and digest_of(original.read_bytes()) == version.digest):
        return version.file
    if not version.text:
        how = "has been changed" if is_there else "is gone"
        raise PipelineRefused(
            f"version {version.number} of {pipeline} cannot run: {version.file} {how}, and no copy of it was kept; "
            "put it back as it was"
        )
    copy = _copies(pipeline, version.number, home) / original.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(version.text)
    (copy.parent / BESIDE).write_text(str(original.parent))
    return str(copy.resolve())


def forget_file(pipeline: str, version: int, *, home: Path = HOME) -> None:
    """The copy of a version that is removed."""
    shutil.rmtree(_copies(pipeline, version, home), ignore_errors=True)


def _copies(pipeline: str, version: int, home: Path) -> Path:
    return home / "versions" / pipeline / f"v{version}"
