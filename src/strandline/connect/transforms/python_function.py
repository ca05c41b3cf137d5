"""A transform that is a Python function: it takes a record and returns one, or None to drop it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.transforms.interface import Transform


class Python(Transform):
    """Calls a function of a module that the worker allows."""

    class Config(BaseConfig):
        function: str = option(
            "The function, as module:name. The worker's plugin.modules must name the module.", importance="HIGH"
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            module, colon, name = self.function.partition(":")
            if not (module and colon and name):
                shown = f"Invalid value {self.function} for configuration function"
                return [("function", f"{shown}: it is not module:name")]
            return ()

    def __init__(self, config: Any, allowed_modules: Collection[str]) -> None:
        super().__init__(config)
        self._function = _loaded(config.function, allowed_modules)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        try:
            found = self._function(record)
        except ConnectFailed:
            raise
        except Exception as error:
            raise RecordFailed(f"{self.config.function} failed: {type(error).__name__}: {error}", record) from error
        if found is not None and not isinstance(found, ConnectRecord):
            raise RecordFailed(f"{self.config.function} returned {type(found).__name__} instead of a record", record)
        return found


def _loaded(place: str, allowed_modules: Collection[str]) -> Callable[[ConnectRecord], Any]:
    module, _, name = place.partition(":")
    if module not in allowed_modules:
        raise InvalidConnectorConfig(
            f"the worker does not run functions of the module {module}: name it in plugin.modules of the worker"
        )
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidConnectorConfig(f"{place} cannot be imported: {error}") from None
    if not callable(found):
        raise InvalidConnectorConfig(f"{place} is no function")
    function: Callable[[ConnectRecord], Any] = found
    return function
