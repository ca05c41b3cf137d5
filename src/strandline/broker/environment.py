"""What every part of a broker stands on, and nothing that a part of it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.config.node_config import BrokerConfig
from strandline.log.disk import Disk
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.runtime.runtime import Runtime

if TYPE_CHECKING:
    from strandline.broker.network.transport import Network
    from strandline.security.sasl.exchange import ClientLogin

OpenStore = Callable[[str, Mapping[str, str], Runtime], Any]
"""Opens the `ObjectStore` at an address, with options. Most nodes have none, so that it is not named here."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine of a broker, its identity, its settings and its view of the cluster."""

    runtime: Runtime
    network: Network
    disk: Disk
    node_id: int
    cluster_id: str
    config: Callable[[], BrokerConfig]
    """Return the settings in force. A change replaces the object, so a part asks each time, or subscribes."""
    image: Callable[[], ClusterImage]
    """Return the cluster as the metadata log says. A snapshot replaces the object, so a part asks each time."""

    broker_login: Callable[[], ClientLogin] | None = None
    """Makes the login of this node at other brokers; None if they need none."""
    controller_login: Callable[[], ClientLogin] | None = None
    """Makes the login of this node at controllers; None if they need none."""
    open_store: OpenStore | None = None
    """Opens the object store in the place of `tiers.store.open_store`, as the simulator does."""

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return where other brokers reach this broker; None if it is not registered or has no such listener."""
        broker, config = self.image().brokers.get(broker_id), self.config()
        return None if broker is None else broker.address(*config.inter_broker_listener())
