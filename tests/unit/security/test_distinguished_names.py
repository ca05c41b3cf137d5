"""Names of certificates as text: Java's `X500Principal.getName()` is the judge, and wrote the expected values."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import MalformedMessage
from strandline.security.tls import der
from strandline.security.tls.certificates import pem_certificates, read_certificate
from strandline.security.tls.distinguished_names import name_text

BY_JAVA = [line.split() for line in Path(__file__).with_name("names_by_java.txt").read_text().splitlines()]
"""The DER of each name, and its text in UTF-8, both in hexadecimal digits."""


@pytest.mark.parametrize(("content", "expected"), BY_JAVA)
def test_a_name_is_printed_as_java_prints_it(content: str, expected: str) -> None:
    element, end = der.read_element(bytes.fromhex(content))
    assert end == len(content) // 2
    assert name_text(element) == bytes.fromhex(expected).decode()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused_and_nothing_else(content: bytes) -> None:
    for read in (read_certificate, lambda data: name_text(der.read_element(data)[0])):
        with contextlib.suppress(MalformedMessage):
            read(content)


@given(st.text(max_size=200))
def test_text_that_is_no_pem_is_refused_and_nothing_else(content: str) -> None:
    with contextlib.suppress(MalformedMessage):
        pem_certificates(f"-----BEGIN CERTIFICATE-----{content}-----END CERTIFICATE-----")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "ends within"),
        ("30", "ends within"),
        ("3005", "ends before it"),
        ("3085ffffffffff", "no certificate has"),
        ("3080", "no certificate has"),
        ("3084ff", "ends within"),
        ("1f0100", "no certificate has"),
    ],
)
def test_lengths_that_lie(content: str, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        der.read_element(bytes.fromhex(content))
