"""Imports what the first requests of each kind would wait for, in small pieces.

A handler may bring a dozen message classes with it, which together keep the loop for tens of milliseconds. So the
messages come first, one module at a time, and then the handlers, which find them loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module

from strandline.broker.routes import Route

_GROUPS = ("group_config", "events", "classic_group", "group_records", "rebalance", "offsets", "join", "group_shard")
_GROUP_RECORDS = ("offset_commit_key", "offset_commit_value", "group_metadata_key", "group_metadata_value")


def import_rest(routes: Iterable[Route]) -> Iterator[str]:
    """Import one module for each step, and say which."""
    cold = [route for route in routes if route.hot is None]
    modules = [f"codec.messages.{route.snake_name}_{kind}" for route in cold for kind in ("request", "response")]
    modules += [f"codec.messages.{name}" for name in _GROUP_RECORDS]
    modules += [f"coordinators.{name}" for name in _GROUPS]
    for name in modules:
        import_module(f"strandline.{name}")
        yield name
    for route in cold:
        route.load()
        yield route.name
