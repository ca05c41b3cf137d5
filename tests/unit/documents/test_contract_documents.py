"""Contracts from any value: an entry, or a sentence that says what is wrong."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.cli.common.failures import UsageFailed
from strandline.cli.contract.contract_files import read_contract

NAMES = """
topics acls quotas owner name state partitions replication retention retention_size cleanup settings lag key user
principal read write groups transactional_ids rules operation topic group cluster pattern host permission exact client
address default produce fetch requests changes connections orders * a.* absent forever 7d all
"""
WORDS = st.sampled_from(NAMES.split())
SCALARS = st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats(0, 10) | WORDS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=12
)
ENTRIES = st.dictionaries(WORDS, VALUES, max_size=6)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "owner": SCALARS,
        "topics": st.lists(ENTRIES | st.fixed_dictionaries({"name": WORDS}, optional={"lag": ENTRIES}), max_size=3),
        "acls": st.lists(ENTRIES | st.fixed_dictionaries({"user": WORDS, "rules": st.lists(ENTRIES)}), max_size=3),
        "quotas": st.lists(ENTRIES | st.fixed_dictionaries({"user": WORDS, "fetch": SCALARS}), max_size=3),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(DOCUMENTS | VALUES)
def test_only_sentences_escape(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "contract.yaml"
    file.write_text(json.dumps(value))
    with contextlib.suppress(UsageFailed):
        assert read_contract([str(file)]).count


def test_internal_topics_are_no_ones_contract(tmp_path: Path) -> None:
    file = tmp_path / "contract.yaml"
    file.write_text("topics: [{name: __consumer_offsets}]\n")
    with pytest.raises(UsageFailed, match=r"contract.yaml:1: __consumer_offsets is internal"):
        read_contract([str(file)])
