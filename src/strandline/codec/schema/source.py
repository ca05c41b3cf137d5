"""Lines of Python on their way to becoming one function."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SourceText:
    """Collects indented lines and the constants they name, and compiles them.

    All names are made here: no name comes from a peer, and field names come from our own schema texts.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._depth = 0
        self._names = 0
        self._structs: dict[str, struct.Struct] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, hint: str) -> str:
        """Return a local name that is not used yet."""
        self._names += 1
        return f"{hint}_{self._names}"

    def constant(self, value: Any, hint: str) -> str:
        """Return the name under which the function finds `value`."""
        for name, known in self.constants.items():
            # Two bound methods of one object are equal but never identical.
            if known is value or (callable(value) and known == value):
                return name
        name = f"{hint}_{len(self.constants)}"
        self.constants[name] = value
        return name

    def struct_for(self, codes: str) -> struct.Struct:
        """Return the big-endian struct for `codes`, made once."""
        if codes not in self._structs:
            self._structs[codes] = struct.Struct(">" + codes)
        return self._structs[codes]

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, function: str, filename: str) -> Callable[..., Any]:
        namespace = dict(self.constants)
        exec(compile(self.text(), filename, "exec"), namespace)
        compiled: Callable[..., Any] = namespace[function]
        return compiled
