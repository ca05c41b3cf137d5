"""Certificates for tests, made by the `openssl` command: an authority, and what it issues."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

LOCAL = ("DNS:localhost", "IP:127.0.0.1")
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def openssl(*arguments: str, content: str = "") -> str:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not installed")
    done = subprocess.run(["openssl", *arguments], input=content, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """One that issues certificates, and trusts itself."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = directory / f"{name}.key"
        self.trusted = directory / f"{name}.pem"
        openssl(
            *("req", "-x509", "-nodes", "-days", "30", *_EC, "-subj", f"/CN={name}"),
            *("-keyout", str(self._key), "-out", str(self.trusted)),
        )

    def issue(
        self,
        name: str,
        *,
        subject: str = "",
        names: Sequence[str] = LOCAL,
        days: int = 20,
        password: str = "",
        to: Path | None = None,
    ) -> Path:
        """Return the file with a new key and its certificate; `to` may be a file that is there already."""
        key, asked = self._directory / f"{name}.key", self._directory / f"{name}.csr"
        lock = ("-passout", f"pass:{password}") if password else ("-nodes",)
        subject = subject or f"/CN={name}"
        openssl(
            *("req", "-new", *_EC, *lock, "-multivalue-rdn", "-utf8", "-subj", subject),
            *("-keyout", str(key), "-out", str(asked)),
        )
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(names)}\n" if names else "basicConstraints=CA:FALSE\n")
        issued = openssl(
            *("x509", "-req", "-in", str(asked), "-CA", str(self.trusted), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions)),
        )
        path = to or self._directory / f"{name}.store.pem"
        fresh = path.with_suffix(".fresh")
        fresh.write_text(key.read_text() + issued)
        fresh.rename(path)
        return path

    def settings(self, store: Path, **more: str) -> dict[str, str]:
        """Return the settings of a node, or of a Java client, with this store; underscores stand for dots."""
        given = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
        }
        return given | {name.replace("_", "."): value for name, value in more.items()}
