"""Where clients reach a broker: ourselves as advertised, others as they registered.

A client gets the addresses of the listener that its request came in on, because it may reach no other one.
"""

from __future__ import annotations

from strandline.handlers.support.context import BrokerServices


def endpoint_of(node: BrokerServices, broker_id: int, listener_name: str) -> tuple[str, int] | None:
    """Return host and port of a broker that is registered, not fenced, and has this listener; else None."""
    broker = node.image.brokers.get(broker_id)
    if broker is None or broker.registration.fenced:
        return None
    return registered_endpoint_of(node, broker_id, listener_name)


def registered_endpoint_of(node: BrokerServices, broker_id: int, listener_name: str) -> tuple[str, int] | None:
    """Return the same even of a broker that is fenced: it will be there again when it comes back."""
    broker = node.image.brokers.get(broker_id)
    if broker is None:
        return None
    if broker_id == node.node_id:
        # What is in the log may be from an earlier start, with another port.
        return node.advertised(listener_name)
    return broker.endpoint(listener_name)
