"""Fencing of source tasks: after it no old task can commit anything (KIP-618)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.coordinators import TRANSACTION, ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.errors import Disconnected, ErrorCode, TimedOut, named

TRANSACTION_TIMEOUT_MS: Final = 60_000
_VERSION_MAX: Final = 5
"""Later versions are for two-phase commit."""


def fence(bootstrap: str, transactional_ids: Iterable[str], timeout_s: float) -> None:
    """Take each transactional id: its open transaction is aborted, and the producer that has it is fenced."""
    client = ClusterClient(ClientSettings.within(bootstrap, "strandline-connect", timeout_s))
    try:
        for each in transactional_ids:
            answer = ask_coordinator(
                client,
                f"fence the producer {each}",
                each,
                InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS),
                InitProducerIdResponse,
                lambda told: told.error_code,
                key_type=TRANSACTION,
                version_max=_VERSION_MAX,
            )
            code = named(answer.error_code)
            if code != ErrorCode.NONE:
                raise ConnectFailed(f"the producer {each} cannot be fenced: {code.name}")
    except (ClientFailed, Disconnected, TimedOut) as error:
        raise RetriableFailure(f"producers cannot be fenced: {error}") from error
    finally:
        client.close()
