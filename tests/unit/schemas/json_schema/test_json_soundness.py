"""What is called compatible is: every sampled instance of the old schema is valid under the new one."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import jsonschema_rs
import pytest
from tests.unit.schemas.json_schema import sampling

from strandline.schemas.json_schema.engine import JsonSchemaEngine

PAIRS = 2_000
INSTANCES = 25


def compatible_pairs(seed: int, count: int) -> list[tuple[sampling.Schema, sampling.Schema]]:
    """Return the pairs, of `count` that are drawn, whose second schema is said to read data of the first."""
    random = Random(seed)
    engine = JsonSchemaEngine()
    found = []
    for _ in range(count):
        old = sampling.schema(random)
        new = sampling.edited(random, old)
        if not engine.parse(json.dumps(new), {}).differences(engine.parse(json.dumps(old), {})):
            found.append((old, new))
    return found


def check(seed: int, count: int) -> Counter[str]:
    random = Random(seed)
    counted = Counter[str]()
    for old, new in compatible_pairs(seed, count):
        counted["compatible"] += 1
        is_old, is_new = jsonschema_rs.Draft7Validator(old), jsonschema_rs.Draft7Validator(new)
        for _ in range(INSTANCES):
            value = sampling.instance(random, old)
            if is_old.is_valid(value):
                counted["instances"] += 1
                assert is_new.is_valid(value), f"seed {seed}: {value!r} of {json.dumps(old)} under {json.dumps(new)}"
    return counted


@pytest.mark.lengthy("hundreds of random changes")
def test_instances_of_the_old_schema_are_valid_under_a_compatible_one() -> None:
    counted = check(seed=20261117, count=PAIRS)
    # Less would prove nothing: most edits would be incompatible, or most instances invalid.
    assert counted["compatible"] > PAIRS / 5
    assert counted["instances"] > 3 * counted["compatible"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_instances_of_many_seeds(seed: int) -> None:
    check(seed, count=5_000)
