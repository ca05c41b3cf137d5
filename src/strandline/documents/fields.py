"""Takes the values of a document apart, field by field.

A `Fields` is one mapping. It hands out its fields by name and kind, and `done` refuses those that were not asked for,
with the name that was probably meant. So the code that reads a mapping is also the list of what may be in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

Path = tuple[str | int, ...]
T = TypeVar("T")


class DocumentFailed(Exception):
    """What is wrong with a document, and where: at a path, or at a line where there is no path yet."""

    def __init__(self, message: str, *, path: Path = (), line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line


class Fields:
    """A mapping that is being read."""

    def __init__(self, value: Any, path: Path = (), *, of: str = "a document") -> None:
        self.of = of
        self.path = path
        if not isinstance(value, dict):
            raise DocumentFailed(f"{of} is a mapping of names to values, not {kind_of(value)}", path=path)
        self._left = dict(value)
        self._asked: list[str] = []

    def failure(self, name: str, message: str) -> DocumentFailed:
        return DocumentFailed(message, path=(*self.path, name))

    def take(self, name: str) -> Any:
        """Return the value of a field as it is; None if it is not there."""
        self._asked.append(name)
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is None or isinstance(value, str):
            return value or None
        if isinstance(value, bool | int | float):
            return plain_text(value)
        raise self.failure(name, f"{name} is a text, not {kind_of(value)}")

    def needed_text(self, name: str, example: str) -> str:
        found = self.text(name)
        if found is None:
            raise DocumentFailed(f"{self.of} needs {name}; for example {name}: {example}", path=self.path)
        return found

    def flag(self, name: str) -> bool | None:
        value = self.take(name)
        if value in ("yes", "on"):
            return True
        if value in ("no", "off"):
            return False
        if value is None or isinstance(value, bool):
            return value
        raise self.failure(name, f"{name} is true or false, not {shown(value)}")

    def whole(self, name: str, *, least: int = 0) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.failure(name, f"{name} is a whole number, not {shown(value)}")
        if value < least:
            raise self.failure(name, f"{name} is at least {least}, not {value}")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        value = self.take(name)
        if value is None or value in choices:
            return value  # type: ignore[no-any-return]  # one of the choices
        raise self.failure(
            name, f"{name} is one of {', '.join(choices)}, not {shown(value)}{meant(str(value), choices)}"
        )

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return what `parse` makes of the text of a field; its ValueError is what is wrong with it."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, dict | list):
            raise self.failure(name, f"{name} is a text, not {kind_of(value)}")
        try:
            return parse(plain_text(value))
        except ValueError as error:
            raise self.failure(name, f"{name}: {error}") from None

    def texts(self, name: str) -> list[str]:
        """Return the texts of a list; a single text counts as a list of one."""
        value = self.take(name)
        if value is None:
            return []
        if isinstance(value, str | int | float):
            return [plain_text(value)]
        if not isinstance(value, list):
            raise self.failure(name, f"{name} is a list of texts, not {kind_of(value)}")
        for number, each in enumerate(value):
            if isinstance(each, dict | list) or each is None:
                raise DocumentFailed(f"{name} is a list of texts, not {kind_of(each)}", path=(*self.path, name, number))
        return [plain_text(each) for each in value]

    def parts(self, name: str, *, of: str) -> Iterator[Fields]:
        """Yield the mappings of a list."""
        value = self.take(name)
        if value is None:
            return
        if not isinstance(value, list):
            raise self.failure(name, f"{name} is a list (lines that begin with -), not {kind_of(value)}")
        for number, each in enumerate(value):
            yield Fields(each, (*self.path, name, number), of=of)

    def part(self, name: str, *, of: str) -> Fields | None:
        value = self.take(name)
        return None if value is None else Fields(value, (*self.path, name), of=of)

    def rest(self) -> Iterator[tuple[str, Any]]:
        """Yield every field that was not taken yet; for mappings with names of the user's own."""
        left, self._left = self._left, {}
        yield from left.items()

    def done(self) -> None:
        """Refuse fields that were not asked for."""
        for name in self._left:
            known = ", ".join(sorted(self._asked))
            message = f"{self.of} has no field {name!r}{meant(name, self._asked) or f'; it has {known}'}"
            raise DocumentFailed(message, path=(*self.path, name))


def meant(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean 'orders'?`, or nothing if no name is near."""
    nearest = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f": did you mean {nearest[0]!r}?" if nearest else ""


def plain_text(value: Any) -> str:
    """Return a scalar as settings are written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else shown(value)


def shown(value: Any) -> str:
    return kind_of(value) if isinstance(value, dict | list) or value is None else repr(plain_text(value))
