"""YAML to plain values, each with its line.

It reads less than YAML 1.1 on purpose. Aliases are refused, because a few lines of them expand to gigabytes. A key that
occurs twice is refused, because one of the two would silently not count. `no` and `off` stay words and `12:30` is no
number: only `true`, `false`, `null` and decimal numbers mean anything else than their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from strandline.documents.fields import DocumentFailed, Path

TEXT_CHARACTERS_MAX: Final = 1 << 20
"""A longer document is refused before it is parsed."""
DEPTH_MAX: Final = 30
INSTALL: Final = "pip install 'strandline[contracts]'"

_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_FLOAT: Final = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_PLAIN_TAGS: Final = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}
_PLAIN_TAGS.update(f"tag:yaml.org,2002:{kind}" for kind in ("value", "merge", "seq", "map"))


@dataclass(frozen=True)
class YamlDocument:
    """One document of a file: its value, and where each part of it begins."""

    value: Any
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """Return the line of a part, or of the nearest part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class YamlMissing(Exception):
    """PyYAML is not installed."""


def load_documents(text: str) -> list[YamlDocument]:
    """Return the documents of a text, without empty ones. DocumentFailed has the line of what is wrong."""
    try:
        import yaml
    except ImportError:
        raise YamlMissing from None
    if len(text) > TEXT_CHARACTERS_MAX:
        raise DocumentFailed(f"the file is longer than {TEXT_CHARACTERS_MAX:,} characters: divide it", line=1)
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except RecursionError:
        raise DocumentFailed(f"parts are nested deeper than {DEPTH_MAX}", line=1) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(each for each in (error.context, error.problem) if each)
        raise DocumentFailed(f"this is no YAML: {words}", line=1 if mark is None else mark.line + 1) from None
    except yaml.YAMLError as error:
        raise DocumentFailed(f"this is no YAML: {error}", line=1) from None
    found = []
    for root in roots:
        lines: dict[Path, int] = {}
        seen: set[int] = set()
        value = _value(root, (), lines, seen)
        if value is not None:
            found.append(YamlDocument(value, lines))
    return found


def _value(node: Any, path: Path, lines: dict[Path, int], seen: set[int]) -> Any:
    line = node.start_mark.line + 1
    lines[path] = line
    if len(path) > DEPTH_MAX:
        raise DocumentFailed(f"parts are nested deeper than {DEPTH_MAX}", line=line)
    if id(node) in seen:
        raise DocumentFailed("aliases (*name) are not read: write the part out", line=line)
    seen.add(id(node))
    if node.id == "scalar":
        return _scalar(node, line)
    if node.tag not in _PLAIN_TAGS:
        raise DocumentFailed(f"the tag {node.tag} is not read", line=line)
    if node.id == "sequence":
        return [_value(each, (*path, number), lines, seen) for number, each in enumerate(node.value)]
    return dict(_pairs(node, path, lines, seen))


def _pairs(node: Any, path: Path, lines: dict[Path, int], seen: set[int]) -> Iterator[tuple[str, Any]]:
    keys: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.id != "scalar":
            raise DocumentFailed("a key must be a word", line=line)
        key = str(key_node.value)
        if key == "<<":
            raise DocumentFailed("merging with << is not read: write the part out", line=line)
        if key in keys:
            raise DocumentFailed(f"{key!r} stands twice, first in line {keys[key]}", line=line)
        keys[key] = line
        value = _value(value_node, (*path, key), lines, seen)
        # A block begins a line below its key, and the key is what a person looks for.
        lines[*path, key] = line
        yield key, value


def _scalar(node: Any, line: int) -> Any:
    text = str(node.value)
    if node.tag not in _PLAIN_TAGS:
        raise DocumentFailed(f"the tag {node.tag} is not read", line=line)
    if node.style is not None:
        return text  # Quoted, or a block of text.
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
