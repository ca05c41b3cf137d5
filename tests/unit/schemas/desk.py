"""A registry without a topic: commands upon a state, and the log of what they wrote."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.schemas.fields_type import FieldsType

from strandline.schemas import commands, registering
from strandline.schemas.engines import Engines, run
from strandline.schemas.failures import RegistryError
from strandline.schemas.records import SchemaRecord, SchemaVersion
from strandline.schemas.registering import Registration, Written
from strandline.schemas.state import RegistryState


class Desk:
    def __init__(self, *types: Any) -> None:
        self.engines = Engines(types or (FieldsType("AVRO"), FieldsType("JSON")))
        self.state = RegistryState()
        self.log: list[SchemaRecord] = []

    def write(self, change: Written[Any]) -> Any:
        for record in commands.with_other_keys(self.state, change.records):
            self.log.append(record)
            self.state.apply(record)
        return change.answer

    def register(self, subject: str, text: str, **body: Any) -> SchemaVersion:
        flags = {name: body.pop(name) for name in ("normalize", "force") if name in body}
        request = Registration.from_json(subject, {"schema": text, **body}, **flags)
        found: SchemaVersion = self.write(run(registering.register(self.state, request), self.engines))
        return found

    def look_up(self, subject: str, text: str, *, deleted: bool = False, **body: Any) -> SchemaVersion:
        request = Registration.from_json(subject, {"schema": text, **body})
        return run(registering.look_up(self.state, request, deleted=deleted), self.engines)

    def check(self, subject: str, text: str, **body: Any) -> list[str]:
        request = Registration.from_json(subject, {"schema": text, **body})
        return run(registering.check(self.state, request, self.state.versions(subject)), self.engines)

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> Any:
        return self.write(commands.delete_version(self.state, subject, version, permanent=permanent))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> Any:
        return self.write(commands.delete_subject(self.state, subject, permanent=permanent))

    def config(self, subject: str | None, **body: Any) -> Any:
        return self.write(commands.change_config(self.state, subject, body))

    def mode(self, subject: str | None, mode: str, *, force: bool = False) -> Any:
        return self.write(commands.change_mode(self.state, subject, {"mode": mode}, force=force))


def compacted(log: list[SchemaRecord]) -> list[SchemaRecord]:
    """Return the newest record of each key, in order, without removals."""
    last = {record.key: at for at, record in enumerate(log)}
    return [record for at, record in enumerate(log) if last[record.key] == at and record.value is not None]


def folded(log: list[SchemaRecord]) -> RegistryState:
    state = RegistryState()
    for record in log:
        state.apply(record)
    return state


def facts(state: RegistryState) -> dict[str, Any]:
    """Return all that a state says, to compare it."""
    contexts = {
        name: (each.id_max, each.places, each.ids)
        for name, each in state.contexts.items()
        if each.places or each.id_max
    }
    return {
        "subjects": state.subjects,
        "configs": state.configs,
        "modes": state.modes,
        "contexts": contexts,
        "guids": state.guids,
        "referencing": state.referencing,
    }


def rejected(code: int) -> Any:
    """Expect a RegistryError of this code."""
    return pytest.raises(RegistryError, check=lambda error: error.code == code)
