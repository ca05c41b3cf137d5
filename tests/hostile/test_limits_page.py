"""docs/limits.md names every limit that the code has, with its value."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "strandline"
PACKAGES = ("broker", "codec", "handlers", "log", "observability", "partition", "quorum", "security", "services")
_LIMIT = re.compile(r"^([A-Z][A-Z_]*_MAX)\b[^=\n]*=", re.MULTILINE)


def limits() -> list[tuple[str, str, float]]:
    """Constant, module, value."""
    found = []
    for path in sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        if ".messages." in module or "_scan" in module:
            continue
        found += [(name, module, getattr(import_module(module), name)) for name in _LIMIT.findall(path.read_text())]
    return found


@pytest.mark.parametrize(("name", "module", "value"), limits(), ids=lambda part: str(part))
def test_a_limit_is_on_the_page_with_its_value(name: str, module: str, value: float) -> None:
    where = module.removeprefix("strandline.").replace(".", "/")
    rows = [
        row for row in (ROOT / "docs" / "limits.md").read_text().splitlines() if f"`{name}`" in row.partition("| ")[2]
    ]
    if where in ("codec/schema/layout", "log/recovery") and name in ("STRING_BYTES_MAX", "RELATIVE_OFFSET_MAX"):
        where = ""  # The same limit has another name's row.
    assert any(where in row and written(value) in row for row in rows), f"docs/limits.md: {name} of {where}, {value}"


def written(value: float) -> str:
    if value == 2**63 - 1:
        return "2^63-1"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
