"""What stops the sink, each in one sentence that says what to do."""

from __future__ import annotations

from strandline.spark.error_translation import SparkFailed


class SinkFailed(SparkFailed):
    """The cluster did not let the batch through; another attempt may."""


class SinkRefused(SinkFailed):
    """Another attempt with the same rows and options fails in the same way."""


class TransactionLost(SinkFailed):
    """The transaction is not this producer's any more: its timeout passed, or another client ended it."""
