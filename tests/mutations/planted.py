"""One planted bug: the header of a patch file, read and checked."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutations.traps import TRAPS

DIRECTORY = Path(__file__).resolve().parent
TIMEOUT_S = 600.0
_HEADING = re.compile(r"^(Trap|Breaks|Catch|Expect|Timeout): *(.*)$")


class BadPatch(Exception):
    """The header does not say what it must, or the patch no longer applies."""


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    path: Path
    trap: str
    breaks: str
    catchers: tuple[tuple[str, ...], ...]
    """Commands, the first word `python`; the first that fails with what is expected has caught the bug."""
    expect: re.Pattern[str]
    timeout_s: float = TIMEOUT_S
    files: tuple[str, ...] = field(default=())


def planted_bugs(directory: Path = DIRECTORY) -> list[Planted]:
    return [read(path) for path in sorted(directory.glob("*.patch"))]


def read(path: Path) -> Planted:
    """The patch with its header; BadPatch says what is missing."""
    headings: dict[str, list[str]] = {}
    current: list[str] | None = None
    files: list[str] = []
    in_header = True
    for line in path.read_text().splitlines():
        if line.startswith("diff --git "):
            in_header = False
            files.append(line.split(" b/", 1)[1])
        if not in_header:
            continue
        heading = _HEADING.match(line)
        if heading:
            current = headings.setdefault(heading[1], [])
            current.append(heading[2].strip())
        elif line.strip() and current:
            current[-1] += f" {line.strip()}"
    missing = [name for name in ("Trap", "Breaks", "Catch", "Expect") if not any(headings.get(name, ()))]
    if missing or not files:
        raise BadPatch(f"{path.name}: no {', '.join(missing) or 'diff'}; see tests/mutations/README.md")
    trap = headings["Trap"][0]
    if trap not in TRAPS:
        raise BadPatch(f"{path.name}: {trap!r} is no trap of tests/mutations/traps.py")
    outside = [name for name in files if not name.startswith("src/")]
    if outside:
        raise BadPatch(
            f"{path.name}: changes {', '.join(outside)}; a bug is planted in src/, never in what looks for it"
        )
    catchers = tuple(tuple(shlex.split(command)) for command in headings["Catch"])
    for catcher in catchers:
        if catcher[0] != "python":
            raise BadPatch(f"{path.name}: a catcher is run as `python ...`, not {catcher[0]!r}")
    return Planted(
        path.stem,
        path,
        trap,
        headings["Breaks"][0],
        catchers,
        re.compile(headings["Expect"][0]),
        float(headings.get("Timeout", [TIMEOUT_S])[0]),
        tuple(files),
    )
