"""Servers that tests of connectors share."""

from tests.connect.postgres_server import postgres

__all__ = ["postgres"]
