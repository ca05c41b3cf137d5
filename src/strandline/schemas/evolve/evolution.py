"""Repair a rejected schema step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.schemas.evolve.avro_repairs import avro_repairs
from strandline.schemas.evolve.json_repairs import json_repairs
from strandline.schemas.evolve.protobuf_repairs import protobuf_repairs
from strandline.schemas.evolve.repairs import Reason, Repair
from strandline.schemas.types import Incompatibility, InvalidSchema, SchemaType

STEPS_MAX: Final = 20
"""Repairs in one answer. A change that needs more is another schema."""
REASONS_TRIED_MAX: Final = 5
"""Reasons that repairs are tried for in one step."""

Repairs = Callable[[str, str, Reason], Iterator[Repair]]
REPAIRS: Final[Mapping[str, Repairs]] = {"AVRO": avro_repairs, "JSON": json_repairs, "PROTOBUF": protobuf_repairs}


@dataclass(frozen=True)
class Evolution:
    """What to change in a rejected schema."""

    steps: tuple[str, ...]
    """Each a sentence that begins with a verb."""
    text: str | None
    """The canonical text of the schema after all steps, which passes; None if no way was found."""
    left: tuple[Incompatibility, ...] = ()
    """Why the schema does not pass after the steps."""


@dataclass(frozen=True)
class SchemaText:
    """A schema with the texts that it refers to."""

    text: str
    references: Mapping[str, str]


def evolve(
    engine: SchemaType, old: SchemaText, new: SchemaText, *, backward: bool = True, forward: bool = False
) -> Evolution:
    """Return the repairs after which `new` is compatible with `old`. Both must be valid."""
    writer = engine.parse(old.text, old.references)

    def reasons(text: str) -> list[Reason]:
        parsed = engine.parse(text, new.references)
        found = [Reason(each, True) for each in parsed.differences(writer)] if backward else []
        return found + [Reason(each, False) for each in writer.differences(parsed)] if forward else found

    text = new.text
    steps: list[str] = []
    left = reasons(text)
    while left and len(steps) < STEPS_MAX:
        repaired = _first_that_helps(REPAIRS[engine.name], old.text, text, left, reasons)
        if repaired is None:
            return Evolution(tuple(steps), None, tuple(each.incompatibility for each in left))
        repair, left = repaired
        text = repair.text
        if repair.step not in steps:
            steps.append(repair.step)
    if left:
        return Evolution(tuple(steps), None, tuple(each.incompatibility for each in left))
    return Evolution(tuple(steps), engine.parse(text, new.references).canonical())


def _first_that_helps(
    repairs: Repairs, old: str, new: str, left: list[Reason], reasons: Callable[[str], list[Reason]]
) -> tuple[Repair, list[Reason]] | None:
    for reason in left[:REASONS_TRIED_MAX]:
        for repair in repairs(old, new, reason):
            try:
                after = reasons(repair.text)
            except InvalidSchema:
                continue
            if len(after) < len(left):
                return repair, after
    return None
