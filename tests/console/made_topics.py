"""Topics that tests make by a stock client."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic


def make_topics(client_config: dict[str, Any], *topics: NewTopic) -> None:
    """Create topics and wait for it."""
    # Kept until the end, because a client that is gone answers nothing.
    admin = AdminClient(client_config)
    for future in admin.create_topics(list(topics)).values():
        future.result()


def make_topic(client_config: dict[str, Any], name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic; underscores in names of settings stand for dots."""
    settings = {key.replace("_", "."): text for key, text in config.items()}
    make_topics(client_config, NewTopic(name, partitions, 1, config=settings))
