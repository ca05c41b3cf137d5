"""Log files over one TLS connection and nothing else: what no broker can undercut with TLS in Python.

The files are read into one buffer and encrypted by OpenSSL; or they are received and decrypted, for a producer's side.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measure import MB
from bench.secured import Certificates

PIECE_BYTES = 256 * 1024
SEND, RECEIVE = "send", "receive"


def cpu_ms_per_mb(direction: str, files: Sequence[Path], certificates: Certificates) -> float:
    """Return the CPU of a process that sends the files over TLS, or receives them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.key_and_certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "bench.bare_tls", direction, str(port), str(certificates.trusted)]
        measured = subprocess.Popen([*command, *map(str, files)], stdout=subprocess.PIPE, text=True)
        try:
            listener.settimeout(30.0)
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as peer:
                if direction == SEND:
                    _drain(peer)
                else:
                    _send_all(peer, files)
            cpu_s = float(measured.communicate(timeout=30.0)[0])
        finally:
            measured.kill()
            measured.wait()
    return cpu_s * 1e3 / (sum(file.stat().st_size for file in files) / MB)


def _drain(connection: ssl.SSLSocket) -> None:
    room = bytearray(PIECE_BYTES)
    while connection.recv_into(room):
        pass


def _send_all(connection: ssl.SSLSocket, files: Sequence[Path]) -> None:
    room = bytearray(PIECE_BYTES)
    view = memoryview(room)
    for file in files:
        with file.open("rb", buffering=0) as source:
            while size_bytes := source.readinto(room):
                connection.sendall(view[:size_bytes])


def main(direction: str, port: str, trusted: str, *files: str) -> None:
    """Work as the measured process, and print its CPU seconds."""
    context = ssl.create_default_context(cafile=trusted)
    with (
        socket.create_connection(("127.0.0.1", int(port))) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        start_s = time.process_time()
        if direction == SEND:
            _send_all(connection, [Path(file) for file in files])
        else:
            _drain(connection)
        print(time.process_time() - start_s, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
