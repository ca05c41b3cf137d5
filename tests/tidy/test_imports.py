"""Imports point inward, from the broker to the codec and never back, and what is called pure is pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "strandline"

BASE = {"_version", "config", "errors", "ids", "runtime"}
MAY_IMPORT = {
    "config": {"errors", "runtime"},
    "runtime": {"errors"},
    "codec": {"errors", "ids"},
    "log": {"codec"} | BASE,
    "replication": {"codec"} | BASE,
    "partition": {"codec", "log", "replication"} | BASE,
    "quorum": {"codec"} | BASE,
    "coordinators": {"codec"} | BASE,
    "observability": {"codec"} | BASE,
    "lag": set(),
    "handlers": {"codec", "log", "partition", "replication", "quorum", "coordinators", "observability"} | BASE,
    "broker": {"codec", "log", "partition", "replication", "quorum", "coordinators", "handlers", "observability", "lag"}
    | BASE,
    "client": {"codec"} | BASE,
    # Starts nodes as processes and formats their directories; the process that can cut links runs a node itself.
    "local": {"broker", "codec", "log", "quorum"} | BASE,
    "testing": {"codec", "local"} | BASE,
    "spark": {"client", "codec"} | BASE,
    # Made from the log alone, without Spark: they share its reader of topics into Arrow.
    "views": {"client", "spark", "codec"} | BASE,
    # With no option a pipeline runs on an embedded node.
    "pipelines": {"client", "spark", "views", "codec", "local"} | BASE,
    # Tools are clients: they speak the Kafka protocol. Only the commands that run a node know one, and `log dump`
    # reads files.
    "cli": {"client", "codec", "log", "broker", "local", "coordinators", "quorum", "lag", "spark", "views", "pipelines"}
    | BASE,
}
PURE = ("codec", "partition", "replication", "quorum", "coordinators", "lag")
IMPURE = {
    "asyncio",
    "io",
    "os",
    "pathlib",
    "secrets",
    "selectors",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uvloop",
}
TYPES_ONLY = {"random"}
"""A source of randomness is handed in; only its type may be named."""


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module, line, only for type checking)"""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            if node.module == "strandline":
                for alias in node.names:
                    yield f"strandline.{alias.name}", node.lineno, id(node) in typing_only
            else:
                yield node.module or "", node.lineno, id(node) in typing_only


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_inward(package: str) -> None:
    wrong = []
    for path in modules(package):
        for module, line, _ in imports(path):
            parts = module.split(".")
            if parts[0] != "strandline" or len(parts) < 2:
                continue
            if parts[1] != package and parts[1] not in MAY_IMPORT[package]:
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_every_package_has_its_place() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert packages == set(MAY_IMPORT)


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_are_pure(package: str) -> None:
    wrong = []
    for path in modules(package):
        for module, line, typing_only in imports(path):
            root = module.split(".")[0]
            if (root in IMPURE or root in TYPES_ONLY) and not typing_only:
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Await | ast.AsyncFunctionDef):
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} awaits")
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"open", "uuid.uuid4", "uuid4", "Random"}:
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} calls {ast.unparse(node.func)}")
    assert not wrong, "\n".join(wrong)


def test_only_the_broker_and_clients_open_sockets() -> None:
    allowed = {"broker", "client", "local", "testing", "cli", "spark"}
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in allowed
        for module, line, _ in imports(path)
        if module.split(".")[0] == "socket"
    ]
    assert not wrong, wrong


def test_every_package_tells_its_part() -> None:
    for package in MAY_IMPORT:
        text = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text()))
        assert text, f"{package}/__init__.py has no docstring"
        assert len(text.splitlines()) >= 3, f"{package}/__init__.py should tell the package's part in a few lines"
