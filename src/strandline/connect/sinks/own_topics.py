"""Which of the names that a sink finds in its target are topics of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping


def is_own_topic(name: str, properties: Mapping[str, str]) -> bool:
    """Return whether a connector's config names a topic, or has a pattern for it."""
    named = [each.strip() for each in properties.get("topics", "").split(",")]
    expression = properties.get("topics.regex")
    return name in named or bool(expression and re.match(expression, name))
