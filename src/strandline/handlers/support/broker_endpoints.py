"""Where clients reach a broker: ourselves as advertised, others as they registered."""

from __future__ import annotations

from strandline.handlers.support.context import BrokerServices


def endpoint_of(node: BrokerServices, broker_id: int) -> tuple[str, int] | None:
    """Host and port of a broker that is registered and not fenced, else None."""
    broker = node.image.brokers.get(broker_id)
    if broker is None or broker.registration.fenced:
        return None
    return registered_endpoint_of(node, broker_id)


def registered_endpoint_of(node: BrokerServices, broker_id: int) -> tuple[str, int] | None:
    """The same even of a broker that is fenced: it will be there again when it comes back."""
    broker = node.image.brokers.get(broker_id)
    if broker is None:
        return None
    if broker_id == node.node_id:
        # What is in the log may be from an earlier start, with another port.
        return node.advertised()
    endpoints = broker.registration.end_points
    return (endpoints[0].host, endpoints[0].port) if endpoints else None
