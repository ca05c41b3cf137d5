"""`count` logins by SCRAM, one after the other, each on a connection of its own.

The client hashes its password once and not for each login, so that it takes few of the cores that the broker needs.
"""

from __future__ import annotations

import secrets
import time

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile
from bench.secured import PASSWORD, authenticate, choose_mechanism
from bench.wire import Connection
from strandline.security.sasl.exchange import OffLoop
from strandline.security.sasl.scram import SCRAM_MECHANISMS, ScramLogin


def main() -> None:
    options = task()
    host, _, _port = options["bootstrap"].partition(":")
    mechanism = SCRAM_MECHANISMS[options["mechanism"]]
    salted: bytes | None = None

    def log_in() -> None:
        nonlocal salted
        login = ScramLogin(mechanism, options["user"], PASSWORD, secrets.token_hex(12))
        with Connection(host, options["port"]) as connection:
            choose_mechanism(connection, mechanism.name)
            asked = login.step(authenticate(connection, login.first()))
            assert isinstance(asked, OffLoop)
            if salted is None:
                salted = asked.work()
            proof = asked.then(salted)
            assert isinstance(proof, bytes)
            login.step(authenticate(connection, proof))

    log_in()
    wait_for_sign()
    start = time.perf_counter()
    latencies = []
    for _ in range(options["count"]):
        began = time.perf_counter()
        log_in()
        latencies.append(time.perf_counter() - began)
    finish(seconds=time.perf_counter() - start, logins=len(latencies), p50_ms=percentile(latencies, 50) * 1e3)


if __name__ == "__main__":
    main()
