"""The session and the broker that all tests with Spark share."""

from __future__ import annotations

from tests.spark_fixtures import BROKER_PROPERTIES, broker, lonely, spark, topic

__all__ = ["BROKER_PROPERTIES", "broker", "lonely", "spark", "topic"]
