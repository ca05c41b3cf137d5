"""Which files connectors may read and write.

A connector's config comes over HTTP, and it may name any file that the worker's user can read, as `/etc/passwd` or a
private key. So a worker that serves HTTP allows only the directories of its setting `allowed.paths`. A worker that runs
a file of the same user allows everything, because that user can read these files anyway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from strandline.connect.failures import InvalidConnectorConfig


class PathRules:
    """Directories, and files, that connectors may touch."""

    def __init__(self, allowed: Sequence[str | os.PathLike[str]] | None = None) -> None:
        """Allow what is below these paths: everything for None, nothing for an empty sequence."""
        self._allowed = None if allowed is None else tuple(Path(each).expanduser().resolve() for each in allowed)

    @property
    def allowed(self) -> list[str] | None:
        """The paths that were given; None if everything is allowed."""
        return None if self._allowed is None else [str(each) for each in self._allowed]

    def check(self, path: str | os.PathLike[str]) -> Path:
        """Return the path without symbolic links and `..`. Open this one, so that a link cannot change in between.

        Raise InvalidConnectorConfig if it is not allowed. The path need not exist.
        """
        text = os.fspath(path)
        if "\0" in text:
            raise InvalidConnectorConfig(f"a path cannot hold a zero byte: {text!r}")
        try:
            resolved = Path(text).resolve()
        except (OSError, RuntimeError) as error:
            raise InvalidConnectorConfig(f"the path {text} cannot be resolved: {error}") from None
        if self._allowed is None or any(resolved.is_relative_to(each) for each in self._allowed):
            return resolved
        raise InvalidConnectorConfig(
            f"connectors may not use the path {text}: name its directory in allowed.paths of the worker"
        )

    def check_url(self, url: str) -> str:
        """Return a URL, checked and resolved if it names a file: `file:///path`, or a path without a scheme."""
        parts = urlsplit(url)
        if parts.scheme == "file":
            return self.check(unquote(parts.path)).as_uri()
        return url if "://" in url else str(self.check(url))


ALLOW_ALL: Final = PathRules()
"""The rules of a worker that has none."""
