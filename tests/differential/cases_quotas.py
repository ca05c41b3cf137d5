"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each
from tests.differential.talk import Talk
from tests.differential.words import versions_of

DESCRIBE, ALTER = 48, 49
EXACT, DEFAULT, ANY = 0, 1, 2
BYTES = "producer_byte_rate"


def cases() -> Iterator[Case]:
    yield from alterations()
    yield from filters()


def entry(entity: list[tuple[str, str | None]], **quotas: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()],
    }


def alterations() -> Iterator[Case]:
    user: list[tuple[str, str | None]] = [("user", "refused")]
    questions: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "no operations": [entry(user)],
        "no entity": [entry([], **{BYTES: 1.0})],
        "an empty user": [entry([("user", "")], **{BYTES: 1.0})],
        "an empty client id": [entry([("client-id", "")], **{BYTES: 1.0})],
        "an unknown type": [entry([("planet", "earth")], **{BYTES: 1.0})],
        "an unknown key": [entry(user, no_such=1.0)],
        "an unknown key, removed": [entry(user, no_such=None)],
        "zero": [entry(user, **{BYTES: 0.0})],
        "below zero": [entry(user, request_percentage=-1.0)],
        "a fraction of bytes": [entry(user, **{BYTES: 1.5})],
        "too many bytes": [entry(user, **{BYTES: 1e30})],
        "too many connections": [entry([("ip", "10.9.8.7")], connection_creation_rate=3e9)],
        "a user's connections": [entry(user, connection_creation_rate=5.0)],
        "an address's bytes": [entry([("ip", "10.9.8.7")], **{BYTES: 5.0})],
        "an address and a user": [entry([("ip", "10.9.8.7"), ("user", "refused")], connection_creation_rate=5.0)],
        "a good and a bad one": [
            entry([("user", "kept")], **{BYTES: 5.0}),
            entry([("user", "refused")], **{BYTES: -5.0}),
        ],
        "a good and a bad value": [entry(user, request_percentage=5.0, **{BYTES: -5.0})],
        "what is not there, removed": [entry(user, **{BYTES: None})],
    }
    for what, entries in questions.items():
        yield from each(ALTER, what, entries=entries)
    for version in versions_of(ALTER):
        yield case(ALTER, version, "set, change and remove", partial(lives, version=version))
        yield case(ALTER, version, "only validated", partial(validated, version=version))


def lives(talk: Talk, version: int) -> None:
    """The life of a quota, each step with what is there afterwards."""
    user: list[tuple[str, str | None]] = [("user", f"life-{version}")]
    left: dict[str, float | None] = {}
    for quotas in (
        {BYTES: 1000.0, "request_percentage": 12.5},
        {BYTES: 2000.0},
        {BYTES: 2000.0},
        {BYTES: None},
        {"request_percentage": None},
    ):
        talk.ask(ALTER, version, entries=[entry(user, **quotas)])
        left = {key: value for key, value in (left | quotas).items() if value is not None}
        wait_for(
            talk, [user] if left else [], left, [{"entity_type": "user", "match_type": EXACT, "match": user[0][1]}]
        )
        note_quotas(talk, user)


def validated(talk: Talk, version: int) -> None:
    user: list[tuple[str, str | None]] = [("user", "never")]
    talk.ask(ALTER, version, entries=[entry(user, **{BYTES: 1000.0})], validate_only=True)
    talk.ask(ALTER, version, entries=[entry(user, **{BYTES: 0.0})], validate_only=True)
    note_quotas(talk, user)


def note_quotas(talk: Talk, entity: list[tuple[str, str | None]]) -> None:
    components = [{"entity_type": kind, "match_type": EXACT, "match": name} for kind, name in entity]
    answer = talk.look(DESCRIBE, 1, components=components, strict=True)
    talk.note([sorted((each.key, each.value) for each in one.values) for one in answer.entries])


def wait_for(
    talk: Talk, entities: list[Any], values: dict[str, float | None], components: list[dict[str, Any]]
) -> None:
    """Wait until a broker shows as many entities with these values: Kafka's follows its controller."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        answer = talk.look(DESCRIBE, 1, components=components)
        shown = [{each.key: each.value for each in one.values} for one in answer.entries]
        if len(shown) == len(entities) and (not values or all(each == values for each in shown)):
            return


ENTITIES: list[list[tuple[str, str | None]]] = [
    [("user", "alice")],
    [("user", None)],
    [("client-id", "app")],
    [("user", "alice"), ("client-id", "app")],
    [("user", "alice"), ("client-id", None)],
    [("user", None), ("client-id", None)],
    [("ip", None)],
]


def filters() -> Iterator[Case]:
    def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
        return {"entity_type": kind, "match_type": match_type, "match": match}

    found: dict[str, list[dict[str, Any]]] = {
        "one user": [component("user", EXACT, "alice")],
        "the default user": [component("user", DEFAULT)],
        "any user": [component("user", ANY)],
        "any user and client": [component("user", ANY), component("client-id", ANY)],
        "a user's default client": [component("user", EXACT, "alice"), component("client-id", DEFAULT)],
        "any address": [component("ip", ANY)],
        "an unknown user": [component("user", EXACT, "nobody-of-that-name")],
    }
    for version in versions_of(DESCRIBE):
        for what, components in found.items():
            for strict in (False, True):
                name = f"{what}, strictly" if strict else what
                yield case(DESCRIBE, version, name, partial(search, version, components, strict))
    wrong: dict[str, list[dict[str, Any]]] = {
        "no type": [component("", ANY)],
        "an unknown type": [component("planet", ANY)],
        "a type twice": [component("user", ANY), component("user", EXACT, "alice")],
        "an exact match of nothing": [component("user", EXACT)],
        "a default with a name": [component("user", DEFAULT, "alice")],
        "any with a name": [component("user", ANY, "alice")],
        "an unknown kind of match": [component("user", 9)],
        "an address and a user": [component("ip", ANY), component("user", ANY)],
    }
    for what, components in wrong.items():
        yield from each(DESCRIBE, what, components=components)


def search(version: int, components: list[dict[str, Any]], strict: bool, talk: Talk) -> None:
    """Which of the entities a filter finds, each with its values, in no particular order."""
    quotas = [(entity, "connection_creation_rate" if entity[0][0] == "ip" else BYTES) for entity in ENTITIES]
    talk.look(ALTER, 1, entries=[entry(entity, **{key: 1e9}) for entity, key in quotas])
    kept = 1  # by "a good and a bad one"
    wait_for(talk, [*ENTITIES, *range(kept)], {}, [])
    answer = talk.look(DESCRIBE, version, components=components, strict=strict)
    talk.note(
        sorted(
            [
                sorted([part.entity_type, part.entity_name or ""] for part in one.entity),
                sorted([each.key, each.value] for each in one.values),
            ]
            for one in answer.entries
        )
    )
    talk.look(ALTER, 1, entries=[entry(entity, **{key: None}) for entity, key in quotas])
    wait_for(talk, list(range(kept)), {}, [])
