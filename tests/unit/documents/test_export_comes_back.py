"""Whatever a cluster has, its export says the same: rights, quotas and settings of topics, through YAML and back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.contract.acl_contract import compare_rights, export_rights, parse_principal_contract
from strandline.cli.contract.contract_files import document_of
from strandline.cli.contract.quotas_kind import export_quotas, parse_quotas
from strandline.cli.contract.topic_contract import TopicState, compare, export_topic, parse_topic
from strandline.cli.quota.words import QuotaEntity
from strandline.config.quota_keys import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    WHOLE_MAX,
)
from strandline.documents.fields import Fields
from strandline.documents.yaml_text import load_documents
from strandline.security.acl.access_rule import Acl
from strandline.security.acl.kinds import CLUSTER_NAME, SUPPORTED, Operation, PatternType, Permission, ResourceType

# What YAML may hold at all: no control characters, and no half of a pair.
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co", "Zl", "Zp"]), min_size=1, max_size=12)
NAMES = TEXT | st.sampled_from(["*", "a*", "a.*", "no", "7", "null", "~", "- x", "a: b", "'", '"', "#", " a "])
PRINCIPAL = "User:x"


@st.composite
def acls(draw: st.DrawFn) -> Acl:
    kind = draw(st.sampled_from([each for each in ResourceType if each in SUPPORTED]))
    operations = [each for each in Operation if each == Operation.ALL or SUPPORTED[kind] >> each & 1]
    is_cluster = kind == ResourceType.CLUSTER
    return Acl(
        kind,
        PatternType.LITERAL if is_cluster else draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        CLUSTER_NAME if is_cluster else draw(NAMES),
        PRINCIPAL,
        draw(st.sampled_from(["*", "10.0.0.1", "::1"])),
        draw(st.sampled_from(operations)),
        draw(st.sampled_from([Permission.ALLOW, Permission.DENY])),
    )


def through_yaml(entry: dict[str, Any]) -> Fields:
    (document,) = load_documents(document_of({"entries": [entry]}))
    return Fields(document.value["entries"][0])


@given(st.sets(acls(), max_size=6))
def test_rights(there: set[Acl]) -> None:
    entry = export_rights(PRINCIPAL, sorted(there))
    change = compare_rights(parse_principal_contract(through_yaml(entry)), there)
    assert (change.added, change.removed) == ((), ())


def amounts(key: str) -> st.SearchStrategy[float]:
    if key in WHOLE_MAX:
        return st.integers(1, min(WHOLE_MAX[key], 2**53)).map(float)
    return st.floats(0.001, 10**6, allow_nan=False).map(lambda number: round(number, 3))


@st.composite
def quotas(draw: st.DrawFn) -> tuple[QuotaEntity, dict[str, float]]:
    name = st.none() | TEXT
    if draw(st.booleans()):
        keys: tuple[str, ...] = (CONNECTION_CREATION_RATE,)
        parts: tuple[tuple[str, str | None], ...] = ((IP, draw(st.none() | st.just("10.0.0.1"))),)
    else:
        keys = CLIENT_KEYS
        kinds = draw(st.sampled_from([(USER,), (CLIENT_ID,), (USER, CLIENT_ID)]))
        parts = tuple((kind, draw(name)) for kind in kinds)
    chosen = draw(st.sets(st.sampled_from(keys), min_size=1))
    return QuotaEntity(parts), {key: draw(amounts(key)) for key in sorted(chosen)}


@given(quotas())
def test_quotas(there: tuple[QuotaEntity, dict[str, float]]) -> None:
    entity, values = there
    found = parse_quotas(through_yaml(export_quotas(entity, values)))
    assert (found.entity, found.quotas) == (entity, values)


OWN = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.integers(-1, 2**52).map(str),
        "retention.bytes": st.integers(-1, 2**52).map(str),
        "cleanup.policy": st.sampled_from(["", "compact", "delete", "compact,delete"]),
        "strandline.owner": TEXT,
        "strandline.lag.objectives": st.sampled_from(["g=1", "a b=60000ms,on=7", "x=y=0ms", "12=90000ms"]),
        "flush.mode": st.sampled_from(["auto", "ack"]),
        "min.cleanable.dirty.ratio": st.sampled_from(["0.5", "1"]),
        "preallocate": st.sampled_from(["true", "false"]),
        "some.others": NAMES,
    },
)


@given(OWN, st.integers(1, 500), st.integers(1, 5), st.booleans())
def test_topics(own: dict[str, str], partitions: int, replication: int, uniform: bool) -> None:
    there = TopicState("orders", partitions, replication, own, dict(own), is_uniform=uniform)
    change = compare(parse_topic(through_yaml(export_topic(there)), None), there, keeps_own=True)
    assert change.is_empty, change
