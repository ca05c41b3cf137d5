"""DescribeAcls, CreateAcls and DeleteAcls of a broker without an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.case import Case, each, newest

DESCRIBE, CREATE, DELETE = 29, 30, 31
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER = 2, 4
ALL, READ = 2, 3
DENY, ALLOW = 2, 3


def cases() -> Iterator[Case]:
    yield from describing()
    yield from creating()
    yield from deleting()


def selection(name: str | None = None, **more: Any) -> dict[str, Any]:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": name,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return fields | more


def creation(name: str = "orders", **more: Any) -> dict[str, Any]:
    fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return fields | more


def describing() -> Iterator[Case]:
    yield from each(DESCRIBE, "everything", **selection())
    yield from each(DESCRIBE, "a topic", **selection("orders", resource_type_filter=TOPIC, pattern_type_filter=LITERAL))
    yield from each(DESCRIBE, "what matches a name", **selection("orders", pattern_type_filter=MATCH))
    yield from each(DESCRIBE, "a principal from a host", **selection(principal_filter="User:a", host_filter="*"))
    questions = {
        "no resource type": selection(resource_type_filter=0),
        "pattern type 99": selection(pattern_type_filter=99),
        "operation -1": selection(operation=-1),
        "a principal without a type": selection(principal_filter="alice"),
    }
    yield from newest(DESCRIBE, questions)


def creating() -> Iterator[Case]:
    yield from each(CREATE, "an ACL", creations=[creation()])
    yield from each(CREATE, "two ACLs", creations=[creation(), creation("o", resource_pattern_type=PREFIXED)])
    yield from each(CREATE, "no ACL", creations=[])
    questions = {
        "a denial": {"creations": [creation(permission_type=DENY, operation=ALL)]},
        "without a name": {"creations": [creation("")]},
        "another name of the cluster": {"creations": [creation("mine", resource_type=CLUSTER)]},
        "operation 0": {"creations": [creation(operation=0)]},
        "operation 99": {"creations": [creation(operation=99)]},
        "a good and a bad one": {"creations": [creation(), creation(principal="alice")]},
    }
    yield from newest(CREATE, questions)


def deleting() -> Iterator[Case]:
    yield from each(DELETE, "everything", filters=[selection()])
    yield from each(DELETE, "two filters", filters=[selection("a"), selection("b", pattern_type_filter=MATCH)])
    yield from each(DELETE, "no filter", filters=[])
    questions = {
        "operation 0": {"filters": [selection(operation=0)]},
        "permission 99": {"filters": [selection(permission_type=99)]},
    }
    yield from newest(DELETE, questions)
