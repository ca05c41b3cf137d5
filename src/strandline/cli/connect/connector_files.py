"""Configs of connectors as people write them: JSON as Kafka Connect's REST takes it, YAML, or properties.

{"name": "orders", "config": {"connector.class": "FileSource", ...}}

connectors:
  orders:
    connector.class: FileSource

name=orders
connector.class=FileSource
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed


@dataclass
class ConnectorFile:
    """What a file says: configs by the names of connectors, and settings of the worker."""

    connectors: dict[str, dict[str, str]]
    worker: dict[str, str] = field(default_factory=dict)


def read_connector_file(path: Path) -> ConnectorFile:
    """Return the connectors of a file. Raise CommandFailed, which names the file and what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no text"
        raise UsageFailed(f"{path} cannot be read: {why}") from None
    if path.suffix == ".properties":
        from strandline.config.properties import parse_properties

        return _of_values(path, [parse_properties(text)])
    return _of_values(path, _json(path, text) if path.suffix == ".json" else _yaml(path, text))


def _json(path: Path, text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageFailed(f"{path} is no JSON: {error}") from None
    return value if isinstance(value, list) else [value]


def _yaml(path: Path, text: str) -> list[Any]:
    from strandline.documents.fields import DocumentFailed
    from strandline.documents.yaml_text import YamlMissing, load_documents

    try:
        return [each.value for each in load_documents(text)]
    except YamlMissing:
        raise CommandFailed("reading YAML needs PyYAML", hint="pip install 'strandline[connect]'") from None
    except DocumentFailed as error:
        raise UsageFailed(f"{path}: {error}") from None


def _of_values(path: Path, values: list[Any]) -> ConnectorFile:
    found = ConnectorFile({})
    for value in values:
        if not isinstance(value, dict):
            raise UsageFailed(f"{path} must hold connectors: an object with `name` and `config`, or `connectors`")
        if isinstance(value.get("connectors"), dict):
            found.worker |= _texts(value.get("worker") or {})
            for name, config in value["connectors"].items():
                _add(found, path, str(name), config)
        elif isinstance(value.get("config"), dict):
            _add(found, path, str(value.get("name") or path.stem), value["config"])
        else:
            _add(found, path, str(value.get("name") or path.stem), value)
    if not found.connectors:
        raise UsageFailed(f"{path} has no connector")
    return found


def _add(found: ConnectorFile, path: Path, name: str, config: Any) -> None:
    if not isinstance(config, dict):
        raise UsageFailed(f"{path}: the config of {name} must be settings with values")
    if name in found.connectors:
        raise UsageFailed(f"{path} has two connectors {name}")
    found.connectors[name] = _texts(config) | {"name": name}


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a config whose values are texts, as Connect's are; a list becomes one with commas."""
    made = {}
    for name, value in config.items():
        if isinstance(value, bool):
            made[str(name)] = "true" if value else "false"
        elif isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
            made[str(name)] = ",".join(str(each) for each in value)
        elif isinstance(value, dict | list):
            made[str(name)] = json.dumps(value)
        elif value is not None:
            made[str(name)] = str(value)
    return made
