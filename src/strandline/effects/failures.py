"""How the replay guard fails."""

from __future__ import annotations

from strandline.errors import WorldError


class EffectsUnknown(WorldError):
    """The marks of a group cannot be read or written, so it is not known which effects may run."""
