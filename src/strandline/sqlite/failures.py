"""Failures of shipping and restoring, each with one sentence for the user.

ShippingFailed
|- ShipperFenced        another shipper writes to the topic
|- TopicUnavailable     the cluster does not answer, or aborted the transaction: try again
`- MomentGone           the topic does not hold what a restore needs
"""

from __future__ import annotations


class ShippingFailed(Exception):
    """A database, a topic or a file that cannot be used; the text says which and what to do."""


class ShipperFenced(ShippingFailed):
    """Another shipper has taken over the topic."""


class TopicAbsent(ShippingFailed):
    """A topic that does not exist."""


class TopicUnavailable(ShippingFailed):
    """A failure of the cluster that passes by itself."""


class MomentGone(ShippingFailed):
    """A moment that the records of the topic do not reach."""
