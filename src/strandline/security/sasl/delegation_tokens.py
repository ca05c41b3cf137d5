"""Delegation tokens (KIP-48): a token is the HMAC of its id, and logs in with SCRAM as its owner.

The metadata log has the id, the owner and the times, never the HMAC. Nodes that share `delegation.token.secret.key`
compute it.
"""

from __future__ import annotations

import base64
import hmac

from strandline.security.sasl.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_password(secret: str, token_id: str) -> str:
    """Return what a client sends as the password of the user `token_id`."""
    return base64.b64encode(token_hmac(secret, token_id)).decode()


def token_credential(mechanism: ScramMechanism, secret: str, token_id: str) -> ScramCredential:
    """Return the SCRAM credential of a token. PBKDF2 takes milliseconds: call it in a thread."""
    salt = hmac.digest(secret.encode(), f"salt {mechanism.name} {token_id}".encode(), "sha256")
    salted = salted_password(mechanism, token_password(secret, token_id), salt, ITERATIONS_MIN)
    return credential_of(mechanism, salted, salt, ITERATIONS_MIN)
