"""Records what Kafka's own converters and transforms make of the cases: `python -m tests.connect.golden.record`."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.kafka_jars import kafka_class_path
from tests.connect.golden.cases import Case, cases

HERE: Final = Path(__file__).parent
RECORDED: Final = HERE / "recorded.json"


def recorded() -> list[tuple[Case, dict[str, Any]]]:
    """Return each case with what was recorded."""
    found = {each["label"]: each for each in json.loads(RECORDED.read_text())}
    known = cases()
    stale = [each["label"] for each in known if found.get(each["label"], {}).get("input") != digest(each)]
    assert not stale, f"record again with `python -m tests.connect.golden.record`: {stale}"
    return [(each, found[each["label"]]["expected"]) for each in known]


def digest(case: Case) -> str:
    """Return what tells one input from another, so that a recording of another input is noticed."""
    return hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:12]


def record() -> list[dict[str, Any]]:
    """Run Kafka's code over all cases."""
    given = cases()
    command = ["java", "-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US", "-cp", kafka_class_path()]
    done = subprocess.run(
        [*command, str(HERE / "Recorder.java")], input=json.dumps(given).encode(), capture_output=True, check=True
    )
    return [
        {"label": case["label"], "input": digest(case), "expected": found["expected"]}
        for case, found in zip(given, json.loads(done.stdout), strict=True)
    ]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in record())
    RECORDED.write_text(f"[\n{lines}\n]\n")
