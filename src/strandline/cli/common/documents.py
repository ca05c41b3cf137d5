"""Documents that a command reads: their files, and their failures with file and line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed
from strandline.documents.fields import DocumentFailed
from strandline.documents.yaml_text import INSTALL, YamlDocument, YamlMissing, load_documents

T = TypeVar("T")
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class NamedDocument:
    """A document with the name of its file."""

    file: str
    document: YamlDocument

    def read(self, reader: Callable[..., T], *more: object) -> T:
        """Return what `reader` makes of the value; a failure names file and line."""
        try:
            return reader(self.document.value, *more)
        except DocumentFailed as failure:
            raise self.failure(failure) from None

    def failure(self, failure: DocumentFailed) -> UsageFailed:
        line = failure.line or self.document.line_of(failure.path)
        return UsageFailed(f"{self.file}:{line}: {failure.message}")


def read_files(names: list[str]) -> list[NamedDocument]:
    """Return the documents of files; a directory counts as the YAML files below it, in the order of their names."""
    found = []
    for name in names:
        path = Path(name)
        paths = [path]
        if path.is_dir():
            paths = sorted(each for each in path.rglob("*") if each.suffix in ENDINGS and each.is_file())
            if not paths:
                raise NotFound(f"there is no file {', '.join(f'*{ending}' for ending in ENDINGS)} in {name}")
        for each in paths:
            found += _read_file(each)
    return found


def _read_file(path: Path) -> list[NamedDocument]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no text"
        raise UsageFailed(f"{path} cannot be read: {why}") from None
    try:
        return [NamedDocument(str(path), document) for document in load_documents(text)]
    except DocumentFailed as failure:
        raise UsageFailed(f"{path}:{failure.line or 1}: {failure.message}") from None
    except YamlMissing:
        raise CommandFailed("reading YAML needs PyYAML, which is not installed", hint=INSTALL) from None
