"""The modules of pages, in the order of the navigation. A new page adds its line here."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from strandline.console.declarations import PageModule

MODULES: Final = (
    "overview",
    "charts",
    "topics",
    "topic_create",
    "topic.records",
    "topic.record",
    "topic.partitions",
    "topic.consumers",
    "topic.settings",
    "topic.storage",
    "topic.keys",
    "topic.agreement",
    "topic.changing",
    "topic.producing",
    "topic.recreating",
    "topics_changing",
    "groups",
    "group",
    "group_changes",
    "transactions",
    "cluster",
    "cluster_changes",
    "node",
    "doctor",
    "queues",
    "dead_letters",
    "security",
    "audit",
    "schemas",
    "connectors",
    "connector_create",
    "pipelines",
    "views",
)
"""Below `strandline.console.pages`; each has a `MODULE`."""


def page_modules() -> list[PageModule]:
    """Return what every module declares."""
    found = []
    for name in MODULES:
        module = import_module(f"strandline.console.pages.{name}").MODULE
        assert isinstance(module, PageModule), name
        found.append(module)
    return found
