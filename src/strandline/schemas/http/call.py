"""One request to the API: its path, query and body, and what its caller may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.schemas.failures import DENIED, RegistryError
from strandline.schemas.http.answers import page
from strandline.schemas.http.rights import EVERY_RIGHT, CallerRights, Right
from strandline.schemas.registering import Written
from strandline.schemas.registry import SchemaRegistry
from strandline.schemas.state import RegistryState
from strandline.schemas.subjects import DEFAULT_CONTEXT, in_context, normal, relative_to

LIST_MAX: Final = 100_000
"""Items in one answer; `offset` reaches the others."""


@dataclass(frozen=True)
class Plain:
    """A text that is answered as it is, and not as JSON."""

    text: str


@dataclass(frozen=True)
class Call:
    """One request."""

    registry: SchemaRegistry
    method: str
    path: tuple[str, ...]
    """Parts of the path, decoded, without the context in front."""
    query: dict[str, list[str]] = field(default_factory=dict)
    body: Any = None
    context: str = DEFAULT_CONTEXT
    rights: CallerRights = EVERY_RIGHT

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    @property
    def is_write(self) -> bool:
        """Return whether it may change something: a POST only if it registers, because others ask."""
        if self.method == "POST":
            return self.path[0] == "subjects" and self.path[2:] == ("versions",)
        return self.method in ("PUT", "DELETE")

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[-1]

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        try:
            return int(text) if text else default
        except ValueError:
            raise RegistryError(404, "HTTP 404 Not Found") from None

    def named(self, at: int) -> str:
        """Return the subject at a place of the path, with its context."""
        name = self.path[at]
        return normal(name if name.startswith(":.") else in_context(self.context, name))

    def subject(self) -> str:
        """Return the subject of the path; an alias stands for the subject that its config names."""
        name = self.named(1)
        alias = self.state.configs.get(name, {}).get("alias")
        return relative_to(name, alias) if alias else name

    def scope(self) -> str | None:
        """Return the subject or context that settings are asked for; None for the default context."""
        return (self.named(1) if len(self.path) > 1 else in_context(self.context, "")) or None

    def paged(self, items: Any, *, limit_max: int = LIST_MAX) -> list[Any]:
        return page(list(items), self.number("offset", 0), self.number("limit", -1), limit_max=limit_max)

    async def decide(self, command: Callable[[RegistryState], Written[Any]]) -> Any:
        """Run a command that needs no engine, and write what it decides."""

        async def decided(state: RegistryState) -> Written[Any]:
            return command(state)

        return await self.registry.write(decided)

    # Rights

    def sees(self, subject: str) -> bool:
        return self.rights.why_denied(Right.SEE, subject) is None

    def sees_id(self, context: str, schema_id: int) -> bool:
        """Say whether the caller sees a subject that has a schema."""
        known = self.state.contexts.get(context)
        return known is not None and any(self.sees(subject) for subject, _ in known.places.get(schema_id, ()))

    def require(self, right: Right) -> None:
        """Raise RegistryError unless the caller has a right on what the path names, and sees what the body names."""
        for needed, subject in (*self._subjects(right), *self._references()):
            if why := self.rights.why_denied(needed, subject):
                raise RegistryError(DENIED, why)

    def _subjects(self, right: Right) -> Iterator[tuple[Right, str | None]]:
        match self.path[0]:
            case "subjects":
                # The subject of an alias, too: its own rights hold for it, by whatever name it is asked for.
                names: list[str | None] = list(dict.fromkeys([self.named(1), self.subject()]))
            case "compatibility":
                names = [self.named(2)]
            case "config" | "mode":
                names = [self.scope()]
            case _:
                names = [None]
        for name in names:
            yield right, name
            if right is Right.REGISTER and self.flag("force"):
                # It goes around the compatibility that was set.
                yield Right.CONFIGURE, name

    def _references(self) -> Iterator[tuple[Right, str]]:
        """Yield the subjects of references: reasons and errors show what their schemas have."""
        given = self.body.get("references") if isinstance(self.body, dict) else None
        if self.path[0] not in ("subjects", "compatibility") or not isinstance(given, list):
            return
        parent = self.subject() if self.path[0] == "subjects" else self.named(2)
        for each in given:
            if isinstance(each, dict) and isinstance(each.get("subject"), str):
                yield Right.SEE, relative_to(parent, each["subject"])
