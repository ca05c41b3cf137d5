"""What AlterConfigs and IncrementalAlterConfigs ask of this process alone, where another node is the controller.

Levels of loggers are set here. Settings of brokers are checked here, against what this broker was started with and
that it is the one that is meant; the controller checks them again. As in Kafka, the rest is for the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from strandline.codec.answers import response_class
from strandline.errors import PeerError, RequestError, error_code, error_message
from strandline.handlers import k33_alter_configs, k44_incremental_alter_configs
from strandline.handlers.support.alterations import alter_loggers
from strandline.quorum.controller.config_changes import ConfigAlteration, config_records
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER

_ALTERATIONS: Final[dict[int, Callable[[Any], list[ConfigAlteration]]]] = {
    k33_alter_configs.API_KEY: k33_alter_configs.alterations,
    k44_incremental_alter_configs.API_KEY: k44_incremental_alter_configs.alterations,
}


class LocalPart:
    """The outcomes that are known here, and the request without what they answer."""

    def __init__(self, node: Any, request: Any) -> None:
        self._request = request
        self._outcomes: dict[int, PeerError | None] = {}
        of_kind = _ALTERATIONS.get(request.API_KEY)
        asked = of_kind(request) if of_kind is not None else []
        times = Counter((each.resource_type, each.resource_name) for each in asked)
        for index, each in enumerate(asked):
            # What stands twice is refused as a whole, by the controller.
            if times[each.resource_type, each.resource_name] == 1:
                self._look_at(node, index, each)

    def _look_at(self, node: Any, index: int, asked: ConfigAlteration) -> None:
        if asked.resource_type not in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
            return
        try:
            config_records(asked, image=node.image, config=node.config, node_id=node.node_id)
        except RequestError as refusal:
            self._outcomes[index] = refusal
            return
        if asked.resource_type == RESOURCE_BROKER_LOGGER:
            validate_only = self._request.validate_only
            self._outcomes[index] = alter_loggers(asked, node.node_id, validate_only=validate_only)

    @property
    def is_nothing(self) -> bool:
        return not self._outcomes

    def rest(self) -> Any | None:
        """Return the request without what is answered here; None if nothing is left."""
        left = [each for index, each in enumerate(self._request.resources) if index not in self._outcomes]
        return type(self._request)(resources=left, validate_only=self._request.validate_only) if left else None

    def answer(self, of_rest: Any | None) -> Any:
        """Return the whole response, in the order of the request, with the controller's response to the rest."""
        answer_class: Any = response_class(type(self._request))
        answer = answer_class()
        part_class: Any = next(field.struct for field in answer_class.FIELDS if field.name == "responses")
        others = iter(() if of_rest is None else of_rest.responses)
        for index, resource in enumerate(self._request.resources):
            if index not in self._outcomes:
                answer.responses += [each for each in [next(others, None)] if each is not None]
                continue
            error = self._outcomes[index]
            answer.responses.append(
                part_class(
                    error_code=0 if error is None else error_code(error),
                    error_message=None if error is None else error_message(error),
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return answer
