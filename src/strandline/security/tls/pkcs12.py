"""PKCS12 stores, read by the package `cryptography`, which is an extra: most nodes use PEM and never import it."""

from __future__ import annotations

from strandline.errors import InvalidConfig


def read_pkcs12(content: bytes, password: str | None, source: str, password_setting: str) -> tuple[str, str, str]:
    """Return private key, its certificates, and other certificates, each as PEM and empty if there is none."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError as error:
        raise InvalidConfig(
            f"{source} is PKCS12, and the package that reads it is missing; expected "
            "`pip install 'strandline[pkcs12]'`, or PEM as made by: openssl pkcs12 -in FILE -out FILE.pem"
        ) from error
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        what = "is not right" if password else "is not set"
        raise InvalidConfig(f"{source} cannot be opened: {password_setting} {what}, or it is no PKCS12") from error
    others = [each.certificate for each in store.additional_certs]
    chain = [] if store.cert is None else [store.cert.certificate, *others]
    key = store.key
    private = "" if key is None else key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    joined = ["".join(each.public_bytes(Encoding.PEM).decode() for each in part) for part in (chain, others)]
    return private, joined[0], joined[1]
