"""What Apache Kafka answered, kept in files, so that a test without Java can compare.

recorded/<API>.json: the version of Kafka, and the answers of each case, one case a line.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.kafka_jars import KAFKA_VERSION
from tests.differential.case import FRAMES, Case, api_name
from tests.differential.talk import Talk
from tests.hostile.peer import Closed

from strandline.errors import MalformedMessage

FAILED = "failed"
RECORDED = Path(__file__).parent / "recorded"

Outcome = list[Any]
"""The answers of one case in their order."""


def run(port: int, ids: dict[str, uuid.UUID], cases: Iterable[Case]) -> dict[str, Outcome]:
    """Every case in its order: later ones may rely on what earlier ones left."""
    return {each.name: outcome(port, ids, each) for each in cases}


def outcome(port: int, ids: dict[str, uuid.UUID], case: Case) -> Outcome:
    talk = Talk(port, ids)
    try:
        case.script(talk)
    except (AssertionError, AttributeError, Closed, OSError, MalformedMessage) as error:
        # An answer that the script cannot go on with is told as such, and the other cases have their turn.
        talk.note(f"{FAILED}: {error!r}")
    finally:
        talk.close()
    # As it will be when it was read from a file.
    kept: Outcome = json.loads(json.dumps(talk.answers))
    return kept


def file_of(case: Case) -> Path:
    name = "frames" if case.api_key == FRAMES else f"k{case.api_key:02}_{api_name(case.api_key)}"
    return RECORDED / f"{name}.json"


def load() -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for path in sorted(RECORDED.glob("*.json")):
        content = json.loads(path.read_text())
        assert content["kafka"] == KAFKA_VERSION, f"{path.name} was recorded with Kafka {content['kafka']}"
        outcomes |= content["cases"]
    return outcomes


def save(cases: Iterable[Case], outcomes: dict[str, Outcome]) -> None:
    files: dict[Path, list[str]] = {}
    for case in cases:
        assert FAILED not in str(outcomes[case.name]), f"{case.name}: {outcomes[case.name]}"
        line = f"  {json.dumps(case.name)}: {json.dumps(outcomes[case.name], sort_keys=True)}"
        files.setdefault(file_of(case), []).append(line)
    for path in RECORDED.glob("*.json"):
        if path not in files:
            path.unlink()
    for path, lines in files.items():
        path.write_text(f'{{"kafka": "{KAFKA_VERSION}", "cases": {{\n' + ",\n".join(lines) + "\n}}\n")
