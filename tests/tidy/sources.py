"""Facts about each module under `src/`, read once for all checks of a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "strandline"
GENERATED = SOURCE / "codec" / "messages"


_PLAIN = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop)
"""Nodes with nothing below them that a check looks for, which most nodes are."""


class Import(NamedTuple):
    module: str
    line: int
    is_for_types: bool
    """Whether it stands under `if TYPE_CHECKING`."""


class Function(NamedTuple):
    name: str
    """With the names of the classes and functions around it."""
    lines: int


class Facts(NamedTuple):
    """What the checks need of one module. The syntax tree itself is dropped, because all of them fill a gigabyte."""

    path: Path
    text: str
    docstring: str
    imports: tuple[Import, ...]
    functions: tuple[Function, ...]
    classes: tuple[str, ...]
    """The public classes at the top of the module."""
    dict_looks: int
    """How often it reads a `__dict__`."""
    impure: tuple[tuple[int, str], ...]
    """(line, what) of each await and of each call that reads the world."""

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT / "src").with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The package below `strandline`, or the module itself where it is in none."""
        return (*self.name.split("."), "strandline")[1]

    @property
    def place(self) -> str:
        return str(self.path.relative_to(ROOT))


@cache
def modules() -> tuple[Facts, ...]:
    """Return all modules under `src/`, those of the generated messages included."""
    return tuple(_read(path) for path in sorted((ROOT / "src").rglob("*.py")))


@cache
def written_modules() -> tuple[Facts, ...]:
    """Return the modules that people write: all but the generated messages."""
    return tuple(each for each in modules() if GENERATED not in each.path.parents)


def _read(path: Path) -> Facts:
    text = path.read_text()
    tree = ast.parse(text)
    found = _Walk(path)
    found.walk(tree, "", is_for_types=False)
    public = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return Facts(
        path,
        text,
        ast.get_docstring(tree) or "",
        tuple(found.imports),
        tuple(found.functions),
        public,
        found.dict_looks,
        tuple(found.impure),
    )


class _Walk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.imports: list[Import] = []
        self.functions: list[Function] = []
        self.dict_looks = 0
        self.impure: list[tuple[int, str]] = []

    def walk(self, parent: ast.AST, around: str, *, is_for_types: bool) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, _PLAIN):
                continue
            inner, for_types = around, is_for_types
            match node:
                case ast.Import() | ast.ImportFrom():
                    self.imports.extend(Import(name, node.lineno, is_for_types) for name in self._imported(node))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    inner = f"{around}{node.name}."
                    self.functions.append(Function(inner[:-1], (node.end_lineno or node.lineno) - node.lineno + 1))
                    if isinstance(node, ast.AsyncFunctionDef):
                        self.impure.append((node.lineno, "awaits"))
                case ast.ClassDef():
                    inner = f"{around}{node.name}."
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    for_types = True
                case ast.Attribute(attr="__dict__"):
                    self.dict_looks += 1
                case ast.Await():
                    self.impure.append((node.lineno, "awaits"))
                case ast.Call(func=ast.Name(id="open" | "uuid4" | "Random") | ast.Attribute(attr="uuid4")):
                    self.impure.append((node.lineno, f"calls {ast.unparse(node.func)}"))
            self.walk(node, inner, is_for_types=for_types)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        assert node.level == 0, f"{self.path}: a relative import hides where a name comes from"
        for alias in node.names:
            # A submodule and a name in a module look alike here.
            inner = ROOT / "src" / f"{node.module}.{alias.name}".replace(".", "/")
            is_module = node.module and node.module.startswith("strandline") and _is_module(inner)
            yield f"{node.module}.{alias.name}" if is_module else node.module or ""


@cache
def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").exists()
