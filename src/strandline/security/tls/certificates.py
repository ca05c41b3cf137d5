"""The fields of an X.509 certificate that a broker reads: subject, validity and alternative names."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from strandline.errors import MalformedMessage
from strandline.security.tls import der
from strandline.security.tls.distinguished_names import name_text

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_PEM = re.compile(r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END", re.ASCII)


class Certificate(NamedTuple):
    subject: str
    """As Java prints it, see `distinguished_names`."""
    begins_s: int
    ends_s: int
    """Seconds since 1970 between which it is valid."""
    alternative_names: frozenset[bytes]
    """Each as the DER of its kind and value."""


def read_certificate(content: bytes) -> Certificate:
    """Return the fields of a certificate in DER. Raise MalformedMessage for bytes that are none."""
    whole, _ = der.read_element(content)
    try:
        fields = der.children(der.children(whole, der.SEQUENCE)[0], der.SEQUENCE)
        if fields[0].tag == _VERSION:
            fields = fields[1:]
        _, _, _, validity, subject, *others = fields
        begins, ends = der.children(validity, der.SEQUENCE)
        names = [name for each in others if each.tag == _EXTENSIONS for name in _alternative_names(each)]
        return Certificate(name_text(subject), _seconds(begins), _seconds(ends), frozenset(names))
    except (IndexError, ValueError) as error:
        raise MalformedMessage(f"a certificate of another form: {error}") from error


def pem_certificates(text: str) -> list[bytes]:
    """Return the certificates of a PEM text as DER, in their order. What is around them is passed over."""
    try:
        return [base64.b64decode("".join(found.split()), validate=True) for found in _PEM.findall(text)]
    except binascii.Error as error:
        raise MalformedMessage(f"a certificate in PEM that is not base64: {error}") from error


def _alternative_names(extensions: der.Element) -> list[bytes]:
    for extension in der.children(next(der.elements(extensions.content)), der.SEQUENCE):
        kind, *_, value = der.children(extension, der.SEQUENCE)
        if der.dotted(kind.content) == _ALTERNATIVE_NAMES:
            names, _ = der.read_element(value.content)
            return [each.whole for each in der.children(names, der.SEQUENCE)]
    return []


def _seconds(time: der.Element) -> int:
    text = time.content.decode("ascii", "replace")
    if time.tag == der.UTC_TIME:
        # Two digits of a year: 50 and above are of the last century.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())
