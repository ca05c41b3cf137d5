"""Files in Java's `.properties` format: `server.properties` and `meta.properties`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(content: str) -> dict[str, str]:
    """Parse a `.properties` file with comments, continued lines and Java's escapes. The last of equal keys wins."""
    properties: dict[str, str] = {}
    for line in _logical_lines(content):
        key, value = _split_key(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Format properties so that `parse_properties` reads them back, one key per line, in the given order."""

    def escape(part: str, *, key: bool) -> str:
        special = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
        if key:
            special |= {" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"}
        escaped = "".join(special.get(character, character) for character in part)
        return "\\" + escaped if escaped.startswith(" ") else escaped

    return "".join(f"{escape(key, key=True)}={escape(value, key=False)}\n" for key, value in properties.items())


def _logical_lines(content: str) -> Iterator[str]:
    pending = ""
    # Only these end a line in a properties file; str.splitlines would also break at form feeds and U+2028.
    for line in re.split(r"\r\n|\n|\r", content):
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        # An odd number of backslashes at the end continues the line; an even number is escaped backslashes.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split_key(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None, "every line matches: both groups may be empty"
    return match[1], match[2]


def _unescape(part: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _UNESCAPED.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.?))", replaced, part, flags=re.DOTALL)
