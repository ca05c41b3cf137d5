"""HTML of templates. Everything is escaped unless a template says otherwise, and none does."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from strandline.cli.common.plain_words import count, size
from strandline.lag.verdict import rate, span

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
TEXT_SHOWN_MAX: Final = 64 * 1024
"""Characters of one value that a page shows; more is for a download."""
_CONTROL: Final = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that are not seen, or that turn a line of text around."""


class Renderer:
    """The templates, with the filters that show figures."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self.static_version = _version_of_static()
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "number": number,
            "size": lambda value: "–" if value is None else size(int(value)),
            "span": lambda value: "–" if value is None else span(float(value)),
            "rate": lambda value: "–" if value is None else rate(float(value)),
            "share": lambda value: "–" if value is None else f"{value:.0%}",
            "time": moment,
            "ago": lambda value: ago(value, now_s() * 1000),
            "visible": visible,
            "segment": lambda value: quote(str(value), safe=""),
            "command": shell_words,
            "count": count,
            "capitalized": lambda value: str(value)[:1].upper() + str(value)[1:],
        }
        self._environment.globals["static"] = lambda name: f"/static/{self.static_version}/{name}"

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(template).render(values)


def number(value: float | None) -> str:
    """Format a count with separators."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def moment(value_ms: float | None) -> str:
    """Format milliseconds since 1970 as a time of UTC."""
    if value_ms is None or value_ms < 0:
        return "–"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(value_ms / 1000)) + " UTC"
    except (OverflowError, OSError, ValueError):
        return f"{value_ms:,.0f} ms"


def ago(value_ms: float | None, now_ms: float) -> str:
    """Format how long ago a time was, by the clock of the console: that of a browser may be wrong."""
    if value_ms is None or value_ms < 0:
        return "–"
    return f"{span(max(0, round((now_ms - value_ms) / 1000)))} ago"


def visible(value: object) -> str:
    """Return text in which characters that are not seen, or that turn the line around, are shown."""
    text = str(value)
    cut = text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "…"
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)


def shell_words(words: Sequence[str]) -> str:
    """Return a command as it is pasted into a shell."""
    return shlex.join(words)


def _version_of_static() -> str:
    """Return what changes with any file, so that browsers may keep them for ever."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
