"""What the commands that serve HTTP have in common: their settings from a file, from -X and from --listen."""

from __future__ import annotations

from pathlib import Path

from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.key_values import key_values


def service_settings(
    config: Path | None, listen: str | None, properties: list[str] | None, *, listen_default: str
) -> dict[str, str]:
    """Return the settings of the file, overruled by those of -X, and where the service listens."""
    from strandline.config.properties import parse_properties

    found: dict[str, str] = {}
    if config is not None:
        try:
            found = parse_properties(config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no text"
            raise UsageFailed(f"--config {config} cannot be read: {why}") from None
    found |= key_values(properties, option="-X")
    if listen is not None or "listeners" not in found:
        listen = listen or listen_default
        scheme = "https" if any(name.startswith("listeners.https.") for name in found) else "http"
        found["listeners"] = listen if "://" in listen else f"{scheme}://{listen}"
    return found
