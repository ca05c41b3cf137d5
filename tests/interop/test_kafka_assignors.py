"""Our assignors beside Apache Kafka's own, on the same thousand groups.

Ranges are the same to the last partition. Uniform ones are as even as Kafka's, and never move more partitions; which
member gets which is a matter of the order of a Java hash map there.
"""

from __future__ import annotations

import json
import random
import subprocess
import uuid
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.java_driver import compiled_classes
from tests.clients.kafka_server import tool_command
from tests.unit.coordinators.group_specs import Assigned, held_pairs, holding, pairs, size

from strandline.coordinators.groups.assignors import Assignment, GroupSpec, MemberSpec, assign

pytestmark = [pytest.mark.slow, pytest.mark.java]

GROUPS = 1_000
SEED = 1


def test_the_assignments_are_as_good_as_kafkas(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    asked = [(rng.choice(("range", "uniform")), _group(rng)) for _ in range(GROUPS)]
    theirs = _kafkas(asked, tmp_path)
    for (assignor, spec), kafkas in zip(asked, theirs, strict=True):
        ours = assign(assignor, spec)
        if assignor == "range":
            assert ours == kafkas, spec
            continue
        assert sorted(map(size, ours.values())) == sorted(map(size, kafkas.values())) or not spec.is_homogeneous, spec
        assert _unevenness(ours) <= _unevenness(kafkas), spec
        if spec.is_homogeneous:
            held = held_pairs(spec)
            assert len(held.intersection(pairs(ours))) >= len(held.intersection(pairs(kafkas))), spec


def _unevenness(assigned: Assigned) -> int:
    return sum(size(assignment) ** 2 for assignment in assigned.values())


def _group(rng: random.Random) -> GroupSpec:
    topics = {uuid.UUID(int=number): rng.randrange(1, 20) for number in range(1, rng.randrange(2, 6))}
    subscriptions = [frozenset(topics)] * 3
    if rng.random() < 0.5:
        subscriptions = [
            frozenset(rng.sample(sorted(topics, key=int), rng.randrange(1, len(topics) + 1))) for _ in "ab"
        ]

    def members(count: int) -> GroupSpec:
        ids = rng.sample(range(20), count)
        static = rng.random() < 0.3
        chosen = {
            f"m{number}": MemberSpec(rng.choice(subscriptions), instance_id=f"i{99 - number}" if static else None)
            for number in ids
        }
        return GroupSpec(chosen, topics)

    before = members(rng.randrange(1, 10))
    return holding(members(rng.randrange(1, 10)), assign("uniform", before) if rng.random() < 0.8 else {})


def _kafkas(asked: list[tuple[str, GroupSpec]], logs: Path) -> list[Assigned]:
    try:
        class_path = f"{compiled_classes()}:{kafka_class_path()}"
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    command = tool_command("Assigning", logs=logs)
    command[command.index("-cp") + 1] = class_path
    lines = "\n".join(_told(assignor, spec) for assignor, spec in asked)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    return [_heard(line, spec) for line, (_, spec) in zip(done.stdout.splitlines(), asked, strict=True)]


def _told(assignor: str, spec: GroupSpec) -> str:
    return json.dumps(
        {
            "assignor": assignor,
            "topics": {str(topic_id.int): count for topic_id, count in spec.partitions.items()},
            "members": {
                member_id: {
                    "instance": member.instance_id,
                    "topics": [str(topic_id.int) for topic_id in member.topic_ids],
                    "assigned": {str(topic_id.int): list(held) for topic_id, held in member.assigned.items()},
                }
                for member_id, member in spec.members.items()
            },
        }
    )


def _heard(line: str, spec: GroupSpec) -> Assigned:
    heard = json.loads(line)

    def assignment(member_id: str) -> Assignment:
        return {uuid.UUID(int=int(topic)): partitions for topic, partitions in heard.get(member_id, {}).items()}

    return {member_id: assignment(member_id) for member_id in spec.members}
