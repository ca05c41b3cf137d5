"""The connectors of a worker that capture changes, as the worker and the database describe them."""

from __future__ import annotations

from typing import Any, Final

from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed
from strandline.cli.connect.worker_api import FAILED, ConnectApi, first_sentence

PLACE: Final = "strandline.cdc."
"""The package of all sources that capture changes."""
_REGISTRY: Final = "value.converter.schema.registry.url"


def cdc_sources(api: ConnectApi, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return what `inspect` says of each source that captures changes, with `state`, `reason` and `problems`."""
    from strandline.connect.plugins import Plugins

    plugins = Plugins()
    shown = {}
    for name, found in api.connectors(names).items():
        config = (found.get("info") or {}).get("config") or {}
        if not _is_cdc(plugins, config.get("connector.class", "")):
            if names:
                raise UsageFailed(f"{name} captures no changes of a database", hint="`strandline connect status`")
            continue
        told = found.get("status") or {}
        units = [told.get("connector") or {}, *(told.get("tasks") or ())]
        state = next((each["state"] for each in units[::-1] if each.get("state")), "UNASSIGNED")
        failed = next((each for each in units if each.get("state") == FAILED), None)
        inspected = api.ask("GET", "connectors", name, "inspect")
        problems = list(inspected.get("problems") or ())
        if failed is not None:
            state = FAILED
            reason = first_sentence(failed.get("trace"))
            problems = [reason, *(each for each in problems if each != reason)] if reason else problems
        versions = _SchemaVersions(config)
        tables = [{**each, "schema_version": versions.of(each["topic"])} for each in inspected.get("tables") or ()]
        shown[name] = {"state": state, **inspected, "tables": tables, "problems": problems}
    return shown


def _is_cdc(plugins: Any, class_name: str) -> bool:
    from strandline.connect.failures import InvalidConnectorConfig

    try:
        return str(plugins.find(class_name).place).startswith(PLACE)
    except InvalidConnectorConfig:
        return False


class _SchemaVersions:
    """The newest versions of topics' schemas, if the source has a registry."""

    def __init__(self, config: dict[str, str]) -> None:
        self._url = config.get(_REGISTRY, "").partition(",")[0]

    def of(self, topic: str) -> int | None:
        if not self._url:
            return None
        try:
            found = ConnectApi(self._url, 5.0).ask("GET", "subjects", f"{topic}-value", "versions", "latest")
        except (NotFound, CommandFailed):
            return None
        version = found.get("version") if isinstance(found, dict) else None
        return version if isinstance(version, int) else None
