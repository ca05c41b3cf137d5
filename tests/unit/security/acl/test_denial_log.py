"""Lines of denials, as a node writes them, and as Kafka's authorizer does."""

from __future__ import annotations

import json
import logging

import pytest

from strandline.observability.log_lines import JsonLines, TextLines
from strandline.security.acl.denial_log import LOGGER, Denial, denial_line, read_denial
from strandline.security.acl.kinds import Operation, ResourceType

DENIALS = (
    Denial("User:billing", "10.0.0.7", Operation.READ, ResourceType.TOPIC, "orders"),
    Denial("User:CN=a b,O=c:d", "::1", Operation.DESCRIBE_CONFIGS, ResourceType.TRANSACTIONAL_ID, 'x "y" {z}\n\u2028}'),
)


@pytest.mark.parametrize("denial", DENIALS)
@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
@pytest.mark.parametrize("is_enforced", [True, False])
def test_what_is_written_is_read(denial: Denial, formatter: logging.Formatter, is_enforced: bool) -> None:
    message = denial_line(denial, is_enforced=is_enforced)
    line = formatter.format(logging.LogRecord(LOGGER, logging.INFO, "", 0, message, None, None))
    assert "\n" not in line
    assert read_denial(line) == denial


def test_kafkas_line_is_read() -> None:
    line = (
        "[2026-11-17 19:00:00,000] INFO Principal = User:billing is Denied operation = DESCRIBE_CONFIGS from host = "
        "10.0.0.7 on resource = TransactionalId:LITERAL:my id for request = FindCoordinator with resourceRefCount = 1 "
        "based on rule DefaultDeny (kafka.authorizer.logger)"
    )
    expected = Denial("User:billing", "10.0.0.7", Operation.DESCRIBE_CONFIGS, ResourceType.TRANSACTIONAL_ID, "my id")
    assert read_denial(line) == expected
    assert read_denial(line.replace("Denied", "Allowed")) is None
    assert read_denial(line.replace("DESCRIBE_CONFIGS", "FLY")) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "{}",
        '{"message": 5}',
        "would deny {}",
        "would deny {" + "[" * 5000 + "}",
        "would deny [1]",
        'would deny {"principal": 1, "host": 2, "operation": 3, "resource_type": 4, "name": 5}',
        "2026-11-17 INFO strandline.node: ready",
        json.dumps({"message": "would deny nothing"}),
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert read_denial(line) is None
