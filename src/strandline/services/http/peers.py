"""TLS from one service of a group to another."""

from __future__ import annotations

import ssl
import time
from typing import Final

from strandline.client.security import ClientSecurity
from strandline.security.tls.contexts import make_contexts
from strandline.services.http.door_settings import DoorSettings

_TRUST_STORE: Final = "ssl.truststore."


def peer_context(door: DoorSettings) -> ssl.SSLContext:
    """Return the context that checks the certificate of another service of the group, and shows our own.

    It trusts what `listeners.https.ssl.truststore.*` names, else what the service trusts the brokers by, else the
    authorities of the machine. The name of the host must be that of the certificate.
    """
    has_own = any(name.startswith(_TRUST_STORE) for name in door.tls)
    client = ClientSecurity.of(door.client).kafka()

    def text(name: str) -> str | None:
        if name == "ssl.endpoint.identification.algorithm":
            return "https"
        if name.startswith(_TRUST_STORE) and not has_own:
            return client.get(name)
        return door.tls_text(name)

    return make_contexts(text, now_s=time.time(), is_server=False).client
