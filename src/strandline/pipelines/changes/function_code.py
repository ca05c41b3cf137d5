"""A digest of what a Python function does: the same for the same code, in every process and on every machine (pure).

Its instructions count, with the values, functions and classes that they use. Comments, line numbers, file names,
docstrings and names of local variables do not. What comes from installed modules counts by its name. Instructions
differ between versions of Python, so a digest is compared with one of the same version only.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Callable, Collection, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

DEPTH_MAX: Final = 60
"""Of values within values; deeper ones count by their type."""

_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, type(...))
_OF_SPARK: Final = ("pyspark", "py4j")


def digest_of_function(function: Callable[..., Any], own: Collection[str] = ()) -> str:
    """`own` are names of modules whose code counts although they can be imported here."""
    return hashlib.sha256("\n".join(_Reading(own).value(function)).encode()).hexdigest()[:16]


class _Reading:
    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self._seen: dict[int, tuple[int, object]] = {}
        """By id, when it was met, and the value itself, so that no id is given twice."""

    def value(self, value: Any, depth: int = 0) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield f"{type(value).__name__} {value!r}"
        elif id(value) in self._seen:
            yield f"again {self._seen[id(value)][0]}"
        elif depth > DEPTH_MAX:
            yield type(value).__qualname__
        else:
            # Whether two equal constants are one object is up to the compiler.
            if not isinstance(value, tuple | frozenset | CodeType):
                self._seen[id(value)] = len(self._seen), value
            yield from self._compound(value, depth + 1)

    def _compound(self, value: Any, depth: int) -> Iterator[str]:
        if isinstance(value, CodeType):
            yield from self._code(value, depth)
        elif isinstance(value, FunctionType):
            yield from self._function(value, depth)
        elif isinstance(value, MethodType):
            yield from self._values("method", (value.__func__, value.__self__), depth)
        elif isinstance(value, ModuleType):
            yield f"module {value.__name__}"
        elif isinstance(value, type):
            yield from self._class(value, depth)
        elif isinstance(value, BuiltinFunctionType):
            yield f"builtin {value.__qualname__}"
        elif type(value) in (list, tuple):
            yield from self._values(type(value).__name__, value, depth)
        elif type(value) in (set, frozenset):
            # Their order differs from process to process.
            yield f"set {sorted(repr(each) for each in value)}"
        elif type(value) is dict:
            yield from self._values("dict", [part for each in value.items() for part in each], depth)
        else:
            yield from self._values("object", _parts(value), depth)

    def _values(self, kind: str, values: Collection[Any], depth: int) -> Iterator[str]:
        yield f"{kind} {len(values)}"
        for each in values:
            yield from self.value(each, depth)

    def _function(self, function: FunctionType, depth: int) -> Iterator[str]:
        if self._is_installed(function):
            yield f"function {function.__module__}.{function.__qualname__}"
            return
        if function.__module__.partition(".")[0] not in _OF_SPARK:
            used = sorted(_names(function.__code__) & function.__globals__.keys())
            yield from self._code(function.__code__, depth)
            yield from self._values("defaults", (function.__defaults__, function.__kwdefaults__), depth)
            yield from self._values(f"uses {used}", [function.__globals__[name] for name in used], depth)
        for cell in function.__closure__ or ():
            try:
                yield from self.value(cell.cell_contents, depth)
            except ValueError:
                yield "empty"

    def _code(self, code: CodeType, depth: int) -> Iterator[str]:
        yield f"code {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}"
        # What no instruction uses, as a docstring, does not show here.
        for each in dis.get_instructions(code):
            if each.opname.endswith("CONST"):
                yield each.opname
                yield from self.value(each.argval, depth)
            else:
                yield f"{each.opname} {each.arg if each.opcode in dis.haslocal else each.argval}"

    def _class(self, of: type, depth: int) -> Iterator[str]:
        yield f"class {of.__module__ if self._is_installed(of) else ''} {of.__qualname__}"
        if self._is_installed(of):
            return
        for name, each in sorted(vars(of).items()):
            if isinstance(each, FunctionType) or not name.startswith("__"):
                inner = getattr(each, "__func__", None) or getattr(each, "fget", None) or each
                yield from self._values(f"member {name}", (inner,), depth)
        yield from self._values("bases", of.__bases__, depth)

    def _is_installed(self, value: Any) -> bool:
        """Return whether a worker imports it by its name, so that no file of the pipeline says what it does."""
        module = str(getattr(value, "__module__", ""))
        found: Any = sys.modules.get(module)
        for name in value.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is value and module not in self._own


def _parts(value: Any) -> list[Any]:
    """Return what it would be made from in another process."""
    try:
        told = value.__reduce_ex__(4)
    except Exception:
        # Whatever cannot be sent says nothing about itself that would hold elsewhere.
        return [type(value)]
    if isinstance(told, str):
        return [told, type(value)]
    return [list(each) if isinstance(each, Iterator) else each for each in told]


def _names(code: CodeType) -> set[str]:
    """Names that a code and those within it use."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
