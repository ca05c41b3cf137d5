"""Secrets in configs: `${file:/path:key}`, `${directory:/path:file}` and `${env:NAME}`, as Kafka's config providers.

A config is stored and shown as it was written; only the worker that runs a task puts the values in. Without a rule of
the worker nothing may be read: a config comes over HTTP, and would else read any file of the worker's user.

    config.providers.file.param.allowed.paths=/run/secrets
    config.providers.env.param.allowlist.pattern=PG_.*
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from strandline.config.properties import parse_properties
from strandline.connect.config import ResolvedText
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.paths import PathRules

_REFERENCE: Final = re.compile(r"\$\{(file|directory|env):(?:([^}]*):)?([^}:]*)\}")
_ALLOWED_PATHS: Final = "config.providers.{}.param.allowed.paths"
_ALLOWED_NAMES: Final = "config.providers.env.param.allowlist.pattern"


class Secrets:
    """What a worker may put into configs. `allows_all` is for a worker that runs a file of its own user."""

    def __init__(self, properties: Mapping[str, str], *, allows_all: bool = False) -> None:
        self._paths = {
            kind: PathRules(None if allows_all else _list(properties.get(_ALLOWED_PATHS.format(kind))))
            for kind in ("file", "directory")
        }
        pattern = properties.get(_ALLOWED_NAMES, ".*" if allows_all else "")
        self._names = re.compile(pattern) if pattern else None

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return a config with the secrets in it. Raise InvalidConnectorConfig, which names the setting."""
        return {name: self._resolved(name, value) for name, value in config.items()}

    def _resolved(self, name: str, value: str) -> str:
        try:
            text, count = _REFERENCE.subn(lambda found: self._value(*found.groups()), value)
            return ResolvedText.of(text, value) if count else text
        except InvalidConnectorConfig as error:
            raise InvalidConnectorConfig(f"{name}: {error}") from None

    def _value(self, kind: str, path: str | None, key: str) -> str:
        if kind == "env":
            if self._names is None or not self._names.fullmatch(key):
                raise InvalidConnectorConfig(
                    f"the worker does not show the variable {key}: allow it by {_ALLOWED_NAMES} of the worker"
                )
            if key not in os.environ:
                raise InvalidConnectorConfig(f"the worker has no variable {key}")
            return os.environ[key]
        try:
            if kind == "directory":
                place = self._paths[kind].check(os.path.join(path or "", key))
                return place.read_text(encoding="utf-8")
            found = parse_properties(self._paths[kind].check(path or "").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no text"
            raise InvalidConnectorConfig(f"the secret of {path} cannot be read: {why}") from None
        if key not in found:
            raise InvalidConnectorConfig(f"{path} has no key {key}")
        return found[key]


def _list(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]
