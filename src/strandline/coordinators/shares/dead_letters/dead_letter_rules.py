"""Whether the dead-letter topic of a group may take records: Kafka's rules in Kafka's order, and one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
"""The setting by which the owner of a topic allows groups to write dead letters to it."""
TIMESTAMP_TYPE: Final = "message.timestamp.type"
NEW_TOPIC_SETTINGS: Final = {GROUP_ENABLE: "true", TIMESTAMP_TYPE: "CreateTime"}
"""The settings of a dead-letter topic that a broker creates."""


def why_refused(
    name: str, settings: Mapping[str, str] | None, *, source: str, prefix: str, is_created: bool
) -> str | None:
    """Return why a topic may take no dead letters of `source`; None if it may, or if it may be created.

    `settings` are those that the topic was given; None if it does not exist. `is_created` says whether a broker creates
    a topic that does not exist.
    """
    if name.startswith("__"):
        return f"the name of the dead-letter topic {name!r} begins with __, as those of internal topics"
    if name == source:
        # Its dead letters would be delivered to the group again, and become dead letters again.
        return f"{name!r} is the topic that the group reads: name another one in errors.deadletterqueue.topic.name"
    if settings is not None and settings.get(GROUP_ENABLE, "false").strip().lower() != "true":
        return f"the topic {name!r} takes no dead letters: set {GROUP_ENABLE}=true on it"
    if not name.startswith(prefix):
        return (
            f"the name of the dead-letter topic {name!r} does not begin with {prefix!r}, as "
            "errors.deadletterqueue.topic.name.prefix says"
        )
    if settings is None and not is_created:
        return (
            f"the dead-letter topic {name!r} does not exist: create it with {GROUP_ENABLE}=true, or set "
            "errors.deadletterqueue.auto.create.topics.enable=true"
        )
    return None
