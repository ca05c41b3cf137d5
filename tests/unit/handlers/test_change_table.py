"""Every API is a change that the audit tells of, or named as none; and no row tells a secret."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from strandline.broker.network.routes import BROKER, CONTROLLER, routes
from strandline.codec.answers import response_class
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from strandline.errors import ErrorCode
from strandline.handlers.audit.change_table import CHANGES, HIDDEN, NO_CHANGES
from strandline.handlers.support.refusals import refusal
from strandline.security.audit.audit_event import details_of

ROUTES = routes(CONTROLLER) | routes(BROKER)
_VALUES = {"string": "a name", "bytes": b"hunter2", "uuid": uuid.UUID(int=7), "bool": False, "float64": 1.5}


def filled(message_class: Any) -> Any:
    """Return a message with one element in each of its arrays."""
    made = message_class()
    for field in message_class.FIELDS:
        kind = field.kafka_type.removeprefix("[]")
        value = filled(field.struct) if field.struct is not None else _VALUES.get(kind, 1)
        setattr(made, field.name, [value] if field.kafka_type.startswith("[]") else value)
    if hasattr(made, "error_code"):
        made.error_code = 0
    return made


def test_every_api_is_a_change_or_none() -> None:
    assert CHANGES.keys() | NO_CHANGES == ROUTES.keys()
    assert not CHANGES.keys() & NO_CHANGES


@pytest.mark.parametrize("api_key", sorted(CHANGES))
def test_a_success_and_a_refusal_are_told(api_key: int) -> None:
    request_class = ROUTES[api_key].load().request_class
    done = list(CHANGES[api_key](filled(request_class), filled(response_class(request_class))))
    assert done
    assert {change.code for change in done} == {0}
    told = json.dumps([change._replace(details=dict(details_of(change.details))) for change in done])
    assert "hunter2" not in told
    hash(details_of(done[0].details))
    version = ROUTES[api_key].version_max
    refused = refusal(filled(request_class), version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    if refused is not None:
        codes = {change.code for change in CHANGES[api_key](filled(request_class), refused)}
        assert codes <= {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


@pytest.mark.parametrize(
    "api_key", sorted(key for key in CHANGES if ROUTES[key].is_forwarded or key in (20_005, 42, 47, 91, 92))
)
def test_a_denial_of_the_whole_request_is_told(api_key: int) -> None:
    """The authorizer leaves these denials to the event of the change."""
    request = filled(ROUTES[api_key].load().request_class)
    refused = refusal(request, ROUTES[api_key].version_max, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    if api_key == 42:
        # Its rights are checked for each group.
        return
    assert {change.code for change in CHANGES[api_key](request, refused)} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        (2, "retention.ms", "7"),
        (2, "my.secret", HIDDEN),
        (4, "log.retention.ms", "7"),
        (4, "ssl.key.password", HIDDEN),
        (4, "listener.name.outside.ssl.keystore.password", HIDDEN),
        (4, "listener.name.outside.scram-sha-512.sasl.jaas.config", HIDDEN),
        (4, "plugin.secret", HIDDEN),
    ],
)
def test_values_of_settings(kind: int, name: str, shown: str) -> None:
    config = AlterableConfig(name=name, config_operation=0, value="7")
    resource = AlterConfigsResource(resource_type=kind, resource_name="1", configs=[config])
    answer = AlterConfigsResourceResponse(resource_type=kind, resource_name="1")
    [change] = CHANGES[44](
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse(responses=[answer])
    )
    assert change.details == {name: shown}
