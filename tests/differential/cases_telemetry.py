"""GetTelemetrySubscriptions and PushTelemetry."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case, newest
from tests.differential.talk import Talk

GET, PUSH = 71, 72
STRANGER = UUID(int=0xABCDEF)


def cases() -> Iterator[Case]:
    yield case(GET, 0, "a new client", new_client)
    yield case(GET, 0, "asks again at once", again_at_once)
    yield case(GET, 0, "with an id of its own", own_id)
    yield case(PUSH, 0, "without having asked", lambda talk: talk.ask(PUSH, 0, client_instance_id=STRANGER))
    yield case(PUSH, 0, "of the zero id", lambda talk: talk.ask(PUSH, 0))
    yield from newest(GET, {"reserved id": {"client_instance_id": UUID(int=1)}})
    for what, fields in PUSHES.items():
        yield case(PUSH, 0, what, partial(pushed, fields=fields))
    yield case(PUSH, 0, "twice at once", twice)
    yield case(PUSH, 0, "after the last word", after_the_last)


def new_client(talk: Talk) -> None:
    talk.ask(GET, 0)


def again_at_once(talk: Talk) -> None:
    first = talk.ask(GET, 0)
    talk.ask(GET, 0, client_instance_id=first.client_instance_id)


def own_id(talk: Talk) -> None:
    talk.ask(GET, 0, client_instance_id=STRANGER)


PUSHES: dict[str, dict[str, Any]] = {
    "nothing": {"metrics": b""},
    "nonsense": {"metrics": b"\xff" * 20},
    "compressed with gzip": {"metrics": gzip.compress(b""), "compression_type": 1},
    "gzip of nonsense": {"metrics": b"nonsense", "compression_type": 1},
    "snappy of nonsense": {"metrics": b"nonsense", "compression_type": 2},
    "lz4 of nonsense": {"metrics": b"nonsense", "compression_type": 3},
    "zstd of nonsense": {"metrics": b"nonsense", "compression_type": 4},
    "codec 5": {"metrics": b"", "compression_type": 5},
    "codec -1": {"metrics": b"", "compression_type": -1},
    "another subscription": {"metrics": b"", "subscription_id": 12345},
    "too much": {"metrics": bytes(1_048_577)},
    "exactly enough": {"metrics": bytes(1_048_576)},
    "the last word": {"metrics": b"", "terminating": True},
    "the last word of another subscription": {"metrics": b"", "terminating": True, "subscription_id": 12345},
}


def subscribed(talk: Talk) -> dict[str, Any]:
    answer = talk.ask(GET, 0)
    return {"client_instance_id": answer.client_instance_id, "subscription_id": answer.subscription_id}


def pushed(talk: Talk, fields: dict[str, Any]) -> None:
    talk.ask(PUSH, 0, **(subscribed(talk) | fields))


def twice(talk: Talk) -> None:
    me = subscribed(talk)
    talk.ask(PUSH, 0, **me)
    talk.ask(PUSH, 0, **me)


def after_the_last(talk: Talk) -> None:
    me = subscribed(talk)
    talk.ask(PUSH, 0, terminating=True, **me)
    talk.ask(PUSH, 0, **me)
    talk.ask(PUSH, 0, terminating=True, **me)
