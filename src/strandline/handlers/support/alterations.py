"""What AlterConfigs and IncrementalAlterConfigs share: the controller decides, and each resource has its outcome.

Levels of loggers are no matter of the cluster: they are set here, in this process, and end with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.codec.message import Message
from strandline.codec.message_codec import encode
from strandline.errors import PeerError, RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.config_changes import AlterOperation, ConfigAlteration, bad_request, broker_id_of
from strandline.quorum.controller.submission import Outcomes
from strandline.quorum.image.cluster_image import RESOURCE_BROKER_LOGGER
from strandline.runtime import loggers


def alter(
    context: RequestContext,
    asked: Sequence[ConfigAlteration],
    *,
    validate_only: bool,
    response: Message,
    part_class: type[Any],
) -> None:
    """Alter the settings, and answer with `response`, whose parts are of `part_class`, when all are in effect."""
    node, version = context.node, context.api_version

    def answer(each: ConfigAlteration, outcome: tuple[RequestError | None, BaseException | None]) -> bytes:
        refusal, write_error = outcome
        error: BaseException | None = write_error or refusal
        if error is None and each.resource_type == RESOURCE_BROKER_LOGGER:
            error = alter_loggers(each, node.node_id, validate_only=validate_only)
        result = part_class(
            error_code=0 if error is None else error_code(error),
            error_message=None if error is None else error_message(error),
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        return encode(result, version)

    def on_done(outcomes: Outcomes[RequestError | None]) -> None:
        reply_in_parts(context, response, map(answer, asked, outcomes))

    node_id = None if context.is_at_controller else node.node_id
    decisions = node.controller.decide_configs(asked, node_id=node_id, validate_only=validate_only)
    node.controller.submit_all(decisions, on_done)


def alter_loggers(asked: ConfigAlteration, node_id: int, *, validate_only: bool) -> PeerError | None:
    """Set all of the levels, or none; return why not."""
    try:
        _check_loggers(asked, node_id)
    except PeerError as refusal:
        return refusal
    if not validate_only:
        for each in asked.operations:
            loggers.set_level(each.name, None if each.operation == AlterOperation.DELETE else each.value)
    return None


def _check_loggers(asked: ConfigAlteration, node_id: int) -> None:
    if broker_id_of(asked.resource_name) is None:
        raise bad_request(f"Node id must be an integer, but it is: {asked.resource_name}")
    if broker_id_of(asked.resource_name) != node_id:
        raise bad_request(f"Unexpected node id. Expected {node_id}, but received {asked.resource_name}")
    for each in asked.operations:
        if each.operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            verb = AlterOperation(each.operation).name
            raise bad_request(f"{verb} operation is not allowed for the BROKER_LOGGER resource")
        loggers.check_level(each.name, None if each.operation == AlterOperation.DELETE else each.value)
