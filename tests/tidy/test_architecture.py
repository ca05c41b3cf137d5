"""`ARCHITECTURE.md` says what is true: its paths exist, and its table has every package."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.debts import PURE
from tests.tidy.sources import ROOT, SOURCE
from tests.tidy.test_imports import BASE, MAY_IMPORT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py")))
ROW = re.compile(r"^\| `(\w+)/` \| (.+?) \| (yes)? ?\|$", re.MULTILINE)


def named_paths() -> Iterator[str]:
    """Yield each path that the page names, as it stands there: below the package or below the root."""
    yield from re.findall(rf"(?<![\w/.])(?:(?:{'|'.join(PACKAGES)}|tests|docs|bench)/[\w/*]*[\w*])", PAGE)


def exists(path: str) -> bool:
    base = SOURCE if path.split("/")[0] in PACKAGES else ROOT
    # `handlers/k08` is the module of an API key, by its beginning.
    endings = ("", ".*", "_*") if path.startswith("handlers/k") else ("", ".*")
    return any(any(base.glob(f"{path}{ending}")) for ending in endings)


def test_every_path_exists() -> None:
    missing = [path for path in sorted(set(named_paths())) if not exists(path)]
    assert not missing, f"ARCHITECTURE.md names {missing}"


def test_every_package_is_in_the_table() -> None:
    assert sorted(package for package, _, _ in ROW.findall(PAGE)) == PACKAGES


def test_what_is_called_pure_is_checked() -> None:
    assert {package for package, _, pure in ROW.findall(PAGE) if pure} == set(PURE)


def test_what_a_package_may_import_is_what_its_row_says() -> None:
    said = {package: row.rsplit(" | ", 1)[1] for package, row, _ in ROW.findall(PAGE)}
    for package, cell in said.items():
        names = set(re.findall(r"`(\w+)`", cell))
        if as_other := re.match(r"as `(\w+)/`", cell):
            names |= set(re.findall(r"`(\w+)`", said[as_other[1]]))
        assert names - BASE == MAY_IMPORT[package] - BASE, package
