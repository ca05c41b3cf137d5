"""Settings of a group, changed one by one; others stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from strandline.client.cluster_client import PASSING, ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.client.security import PLAINTEXT, ClientSecurity
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.errors import ErrorCode, named

GROUP_RESOURCE: Final = 32


def set_group_settings(
    bootstrap: str, group_id: str, settings: Mapping[str, str], security: ClientSecurity = PLAINTEXT
) -> None:
    """Set settings of a group; it need not exist yet."""
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group_id,
        configs=[AlterableConfig(name=name, value=value) for name, value in settings.items()],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    with closing(ClusterClient(ClientSettings(bootstrap, "strandline-queue", security=security))) as client:

        def attempt() -> bool | None:
            (answer,) = client.ask_any(request, IncrementalAlterConfigsResponse).responses
            code = named(answer.error_code)
            if code in PASSING or code == ErrorCode.NOT_CONTROLLER:
                return None
            if code:
                raise ClusterFailed(f"cannot set settings of group {group_id}: {answer.error_message or code.name}")
            return True

        client.retried(f"set settings of group {group_id}", attempt)
