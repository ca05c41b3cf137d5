"""What Apache Kafka answers to clients with and without rights, kept in files.

recorded/rights/<API>.json: the version of Kafka; then, for each request and user, the answers with the versions that
they are given in.

python -m tests.differential.rights_recording      record what Apache Kafka says
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.kafka_jars import KAFKA_VERSION
from tests.differential.recording import RECORDED
from tests.differential.rights_cases import CASES, ROUTES, RightsCase, ask
from tests.differential.rights_stage import RightsTalk, kafka_with_rights

RIGHTS = RECORDED / "rights"


def run(port: int, ids: dict[str, uuid.UUID], cases: Iterable[RightsCase]) -> dict[str, Any]:
    """Return the answer of every case by its name. All requests of a user go through one connection."""
    talk = RightsTalk(port, ids)
    try:
        # As it will be when it was read from a file.
        return {case.name: json.loads(json.dumps(ask(talk, case))) for case in cases}
    finally:
        talk.close()


def file_of(api_key: int) -> Path:
    return RIGHTS / f"k{api_key:02}_{ROUTES[api_key].name}.json"


def load() -> dict[str, Any]:
    outcomes: dict[str, Any] = {}
    for path in sorted(RIGHTS.glob("*.json")):
        content = json.loads(path.read_text())
        assert content["kafka"] == KAFKA_VERSION, f"{path.name} was recorded with Kafka {content['kafka']}"
        api = path.stem.split("_", 1)[1]
        for what, answers in content["cases"].items():
            for versions, answer in answers:
                outcomes |= {f"{api} {version}: {what}": answer for version in versions}
    return outcomes


def save(cases: Iterable[RightsCase], outcomes: dict[str, Any]) -> None:
    files: dict[int, dict[str, list[tuple[list[int], Any]]]] = {}
    for case in cases:
        answers = files.setdefault(case.api_key, {}).setdefault(f"{case.what}: {case.user}", [])
        alike = next((versions for versions, answer in answers if answer == outcomes[case.name]), None)
        if alike is None:
            answers.append(([case.version], outcomes[case.name]))
        else:
            alike.append(case.version)
    RIGHTS.mkdir(exist_ok=True)
    for path in RIGHTS.glob("*.json"):
        path.unlink()
    for api_key, asked in files.items():
        lines = [f"  {json.dumps(what)}: {json.dumps(answers, sort_keys=True)}" for what, answers in asked.items()]
        file_of(api_key).write_text(f'{{"kafka": "{KAFKA_VERSION}", "cases": {{\n' + ",\n".join(lines) + "\n}}\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as root, kafka_with_rights(Path(root)) as (port, ids):
        outcomes = run(port, ids, CASES)
    save(CASES, outcomes)
    print(f"{len(outcomes)} cases recorded")


if __name__ == "__main__":
    main()
