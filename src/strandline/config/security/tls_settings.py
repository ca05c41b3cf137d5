"""The settings of TLS, which may also be set for one listener (`listener.name.<name>.ssl.keystore.location`)."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import PER_BROKER, boolean, of_form, one_of, password, text, words

_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
_STORES = of_form(r"(?i)JKS|PKCS12|PEM", "PEM", "PKCS12", "JKS")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """The table of TLS settings. Each attribute is the setting of that name with underscores for dots."""

    ssl_keystore_location: str | None = text(
        "ssl.keystore.location",
        None,
        None,
        "The file with the private key and the certificates of this node, its own first: PEM, or PKCS12 with the extra "
        "`strandline[pkcs12]`. The content says which it is. A changed file is used from the next connection on.",
        update=PER_BROKER,
    )
    ssl_keystore_key: str | None = password(
        "ssl.keystore.key", "The private key as PEM text, in place of a file.", update=PER_BROKER
    )
    ssl_keystore_certificate_chain: str | None = password(
        "ssl.keystore.certificate.chain",
        "The certificates that belong to `ssl.keystore.key`, as PEM text, that of this node first.",
        update=PER_BROKER,
    )
    ssl_keystore_type: str = text(
        "ssl.keystore.type",
        "JKS",
        _STORES,
        "The content of the file says what it is. A file in Java's own format (JKS) is refused.",
        effect=False,
        update=PER_BROKER,
    )
    ssl_keystore_password: str | None = password(
        "ssl.keystore.password", "The password of a PKCS12 key store.", update=PER_BROKER
    )
    ssl_key_password: str | None = password(
        "ssl.key.password", "The password of an encrypted private key.", update=PER_BROKER
    )
    ssl_truststore_location: str | None = text(
        "ssl.truststore.location",
        None,
        None,
        "The file with the certificates that peers are checked by: PEM, or PKCS12.",
        update=PER_BROKER,
    )
    ssl_truststore_certificates: str | None = password(
        "ssl.truststore.certificates", "The same as PEM text, in place of a file.", update=PER_BROKER
    )
    ssl_truststore_type: str = text(
        "ssl.truststore.type", "JKS", _STORES, "As `ssl.keystore.type`.", effect=False, update=PER_BROKER
    )
    ssl_truststore_password: str | None = password(
        "ssl.truststore.password", "The password of a PKCS12 trust store.", update=PER_BROKER
    )
    ssl_client_auth: str = text(
        "ssl.client.auth",
        "none",
        one_of("none", "requested", "required"),
        "Whether a client must show a certificate. A client that is only requested to and has none is "
        "`User:ANONYMOUS`.",
    )
    ssl_enabled_protocols: tuple[str, ...] = words(
        "ssl.enabled.protocols",
        _PROTOCOLS,
        one_of(*_PROTOCOLS),
        "The versions of TLS that are spoken. Older ones are not safe and not there.",
    )
    ssl_protocol: str = text(
        "ssl.protocol",
        "TLSv1.3",
        one_of("TLS", *_PROTOCOLS),
        "`ssl.enabled.protocols` says which versions are spoken.",
        effect=False,
    )
    ssl_cipher_suites: tuple[str, ...] = words(
        "ssl.cipher.suites",
        (),
        None,
        "The cipher suites that are allowed, by their names in the standards; empty means all that are safe. Without a "
        "suite of TLS 1.3 only TLS 1.2 is spoken. All three suites of TLS 1.3 are on together or off.",
    )
    ssl_endpoint_identification_algorithm: str = text(
        "ssl.endpoint.identification.algorithm",
        "https",
        of_form("(?i)(https)?", "https", "empty"),
        "Whether a node checks that the certificate of another node names the host that it connects to. Empty turns "
        "the check off: then each certificate that the trust store accepts may stand for each node.",
    )
    ssl_principal_mapping_rules: str = text(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        None,
        "How the subject of a client certificate becomes the name of its principal: `DEFAULT`, or "
        "`RULE:pattern/replacement/[LU]`, comma-separated; the first that matches decides.",
    )
    ssl_allow_dn_changes: bool = boolean(
        "ssl.allow.dn.changes", False, "Whether a reloaded certificate may have another subject."
    )
    ssl_allow_san_changes: bool = boolean(
        "ssl.allow.san.changes", False, "Whether a reloaded certificate may lack names that the old one had."
    )
