"""What the rules of the tree still except, by name. The list may only become shorter.

Each measure returns how far a module, function or class is from its rule. `debts.json` holds what is excepted today. A
change that adds to a measure fails; so does one that pays a debt and leaves its entry in the list, because the debt
could come back. `python -m tests.tidy.debts` removes what has been paid.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.tidy.sources import ROOT, SOURCE, modules, written_modules

LIST: Final = Path(__file__).with_name("debts.json")
FUNCTION_LINES_MAX: Final = 70
COMPLEXITY_MAX: Final = 20
MODULE_LINES_MAX: Final = 500
MODULES_MAX: Final = 25
MAY_IMPORT_NODE: Final = {"strandline.broker.main", "strandline.local.cuttable_node"}
PURE: Final = ("codec", "replication", "quorum", "coordinators", "lag", "documents", "advice")
IMPURE: Final = {
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
READS_ITSELF: Final = "strandline.config.kafka_settings"
"""Reads a table that is installed beside it, which is a constant and not the world."""
WORDS: Final = ("whoever", "nobody", "somebody", "anew")
"""Plain prose names the actor, and the second time is `again`."""

Measure = Callable[[], Mapping[str, int]]


def import_cycles() -> dict[str, int]:
    """The size of the import cycle that a module is part of. Imports for types alone count."""
    graph = {each.name: {found.module for found in each.imports} - {each.name} for each in written_modules()}
    return {name: len(cycle) for cycle in _cycles(graph) for name in cycle}


def _cycles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components of two or more (Tarjan)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        numbers[name] = lowest[name] = len(numbers)
        path.append(name)
        for other in graph[name] & graph.keys():
            if other not in numbers:
                yield from visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in path:
                lowest[name] = min(lowest[name], numbers[other])
        if lowest[name] == numbers[name]:
            start = path.index(name)
            component = path[start:]
            del path[start:]
            if len(component) > 1:
                yield component

    for name in graph:
        if name not in numbers:
            yield from visit(name)


def imports_of_node() -> dict[str, int]:
    """Modules that import `broker.node`, which only wires the parts; a part takes what it needs instead."""
    return {
        each.name: 1
        for each in modules()
        if each.name not in MAY_IMPORT_NODE and any(found.module == "strandline.broker.node" for found in each.imports)
    }


def impure_reach() -> dict[str, int]:
    """Modules of pure packages that import, at run time and through others, a module that reads the world."""
    runtime = {each.name: {found.module for found in each.imports if not found.is_for_types} for each in modules()}

    @cache
    def reach(name: str) -> frozenset[str]:
        reached, waiting = {name}, [name]
        while waiting:
            for other in runtime[waiting.pop()] & runtime.keys() - reached:
                reached.add(other)
                waiting.append(other)
        return frozenset(reached)

    impure = {name for name, found in runtime.items() if any(module.split(".")[0] in IMPURE for module in found)}
    impure.discard(READS_ITSELF)
    return {
        each.name: 1
        for each in written_modules()
        if each.package in PURE and each.name not in impure and reach(each.name) & impure
    }


def long_functions() -> dict[str, int]:
    """Functions of more lines than fit a screen."""
    return {
        f"{each.place} {function.name}": 1
        for each in written_modules()
        for function in each.functions
        if function.lines > FUNCTION_LINES_MAX
    }


def complex_functions() -> dict[str, int]:
    """Functions with more branches than a reader can follow (ruff C901)."""
    options = ["--isolated", "--no-cache", "--output-format=json", "--select=C901", "--exit-zero"]
    options += ["--config", f"lint.mccabe.max-complexity={COMPLEXITY_MAX}"]
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *options, "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    counted: dict[str, int] = {}
    for each in json.loads(found.stdout):
        name = re.match(r"`(\w+)`", each["message"])
        assert name is not None, each
        counted[f"{Path(each['filename']).relative_to(ROOT)} {name[1]}"] = 1
    return counted


def long_modules() -> dict[str, int]:
    """Modules of more than 500 lines."""
    return {each.place: 1 for each in written_modules() if len(each.text.splitlines()) > MODULE_LINES_MAX}


def full_folders() -> dict[str, int]:
    """Folders of more than 25 modules. The handlers `k*`, one for each API, do not count."""
    paths = [each.path for each in written_modules()] + list((ROOT / "tests" / "simulator").rglob("*.py"))
    counted = Counter(
        str(path.parent.relative_to(ROOT))
        for path in paths
        if not (path.parent == SOURCE / "handlers" and re.match(r"k\d", path.name))
    )
    return {folder: count for folder, count in counted.items() if count > MODULES_MAX}


def shared_class_names() -> dict[str, int]:
    """Public classes with the same name, in how many modules."""
    counted = Counter(name for each in written_modules() for name in each.classes)
    return {name: count for name, count in counted.items() if count > 1}


def dict_looks() -> dict[str, int]:
    """Reads of a `__dict__`, which go around an interface."""
    return {each.place: each.dict_looks for each in written_modules() if each.dict_looks}


def words() -> dict[str, int]:
    """Words that prose does without, per package."""
    counted: Counter[str] = Counter()
    pattern = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
    for each in written_modules():
        counted.update(f"{each.package}: {word.lower()}" for word in pattern.findall(each.text))
    return dict(counted)


MEASURES: Final[dict[str, Measure]] = {
    measure.__name__: measure
    for measure in (
        import_cycles,
        imports_of_node,
        impure_reach,
        long_functions,
        complex_functions,
        long_modules,
        full_folders,
        shared_class_names,
        dict_looks,
        words,
    )
}


def known() -> dict[str, dict[str, int]]:
    """Return what is excepted today, by measure."""
    return json.loads(LIST.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Remove from the list what has been paid."""
    shrunk = {}
    for name, excepted in known().items():
        found = MEASURES[name]()
        shrunk[name] = {key: min(count, found[key]) for key, count in sorted(excepted.items()) if key in found}
        print(f"{name}: {sum(excepted.values())} before, {sum(shrunk[name].values())} now")
    LIST.write_text(json.dumps(shrunk, indent=1) + "\n")


if __name__ == "__main__":
    main()
