"""Frames and headers that something is wrong with, and APIs and versions that nobody serves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import FRAMES, Case, api_name
from tests.differential.cases_metadata import SERVED
from tests.differential.talk import Talk, request
from tests.differential.words import message_of, request_class, versions_of
from tests.hostile.odd_requests import HUGE_COUNT, HUGE_VARINT, NULL_COUNT, UNKNOWN_TAGS
from tests.hostile.peer import framed, header

METADATA, API_VERSIONS = 3, 18
INTERNAL = {
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    52: "Vote",
    58: "Envelope",
}
"""Removed, or not for the listener of clients."""


def cases() -> Iterator[Case]:
    for what, (content, api_key, version) in contents().items():
        yield Case(f"frame: {what}", FRAMES, 0, partial(sent, content=content, api_key=api_key, version=version))
    yield from unknown_versions()


def sent(talk: Talk, content: bytes, api_key: int, version: int) -> None:
    """Whether it is answered, and with which codes; what is in the answer is the matter of other cases."""
    talk.ask_raw(content, api_key, version)
    if isinstance(said := talk.answers[-1], dict):
        talk.answers[-1] = {"answered": sorted(set(codes_in(said)))}
        if api_key == API_VERSIONS:
            talk.answers[-1]["only itself"] = [each.get("api_key") for each in said.get("api_keys", [])] == [
                API_VERSIONS
            ]


def codes_in(said: Any) -> Iterator[str]:
    match said:
        case dict():
            for name, value in said.items():
                yield from [value] if name == "error_code" else codes_in(value)
        case list():
            for each in said:
                yield from codes_in(each)


def unknown_versions() -> Iterator[Case]:
    """One beyond the newest, and -1, of every API that is compared."""
    for api_key in SERVED:
        beyond = versions_of(api_key)[-1] + 1
        for version in (-1, beyond, 2**15 - 1):
            content = framed(header(api_key, version, flexible=True) + bytes(20))
            answer_version = 0 if api_key == API_VERSIONS else beyond - 1
            script = partial(sent, content=content, api_key=api_key, version=answer_version)
            yield Case(f"frame: {api_name(api_key)} in version {version}", FRAMES, version, script)


def contents() -> dict[str, tuple[bytes, int, int]]:
    """Content, and the API key and version of the answer, if one comes."""
    table = {
        f"of {size} bytes": (struct.pack(">i", size) + header(METADATA, 0, flexible=False), METADATA, 0)
        for size in (-1, -(2**31), 0, 1, 9, 104_857_601, 2**31 - 1)
    }
    whole = request(
        METADATA,
        9,
        message_of(request_class(METADATA), {"topics": [{"name": "nowhere"}], "allow_auto_topic_creation": False}),
    )
    table |= {
        "unknown API key": (framed(header(1000, 0, flexible=False)), METADATA, 0),
        "negative API key": (framed(header(-1, 0, flexible=False)), METADATA, 0),
        "null array": (framed(header(3, 0, flexible=False) + NULL_COUNT), METADATA, 0),
        "array of -2": (framed(header(3, 1, flexible=False) + b"\xff\xff\xff\xfe"), METADATA, 1),
        "huge array": (framed(header(3, 1, flexible=False) + HUGE_COUNT), METADATA, 1),
        "huge compact array": (framed(header(3, 9, flexible=True) + HUGE_VARINT), METADATA, 9),
        "endless varint": (framed(header(3, 9, flexible=True) + b"\xff" * 20), METADATA, 9),
        "cut short": (framed(whole[4:-2]), METADATA, 9),
        "only a header": (framed(header(3, 9, flexible=True)), METADATA, 9),
        "bytes behind": (framed(whole[4:] + b"abc"), METADATA, 9),
        "unknown tagged fields": (framed(whole[4:-1] + UNKNOWN_TAGS), METADATA, 9),
        "unknown tagged fields in the header": (
            framed(header(3, 9, flexible=False) + UNKNOWN_TAGS + whole[4 + 10 + 7 + 1 :]),
            METADATA,
            9,
        ),
        "tagged fields in no order": (framed(whole[4:-1] + b"\x02\x05\x00\x03\x00"), METADATA, 9),
        "a tagged field twice": (framed(whole[4:-1] + b"\x02\x05\x00\x05\x00"), METADATA, 9),
        "a tagged field longer than the frame": (framed(whole[4:-1] + b"\x01\x05\x7f"), METADATA, 9),
        "name that is no UTF-8": (framed(header(3, 1, flexible=False) + b"\0\0\0\x01\0\x01\xff"), METADATA, 1),
        "null name": (framed(header(3, 1, flexible=False) + b"\0\0\0\x01\xff\xff"), METADATA, 1),
        "name of length -2": (framed(header(3, 1, flexible=False) + b"\0\0\0\x01\xff\xfe"), METADATA, 1),
        "client id that is no UTF-8": (framed(header(3, 1, flexible=False, client_id=b"\xff") + bytes(4)), METADATA, 1),
        "client id null": (framed(struct.pack(">hhih", 3, 1, 1, -1) + bytes(4)), METADATA, 1),
        "client id of length -2": (framed(struct.pack(">hhih", 3, 1, 1, -2) + bytes(4)), METADATA, 1),
        "client id empty": (framed(header(3, 1, flexible=False, client_id=b"") + bytes(4)), METADATA, 1),
        "client id longer than the frame": (framed(struct.pack(">hhih", 3, 1, 1, 500) + bytes(4)), METADATA, 1),
        "client id of 32,767": (framed(header(3, 1, flexible=False, client_id=b"x" * 32767) + bytes(4)), METADATA, 1),
        "bool 2": (framed(header(3, 4, flexible=False) + bytes(4) + b"\x02"), METADATA, 4),
        "ApiVersions 3 with an old header": (framed(header(18, 3, flexible=False) + b"\x02a\x02b\0"), API_VERSIONS, 3),
        "ApiVersions 0 with a body": (framed(header(18, 0, flexible=False) + b"abc"), API_VERSIONS, 0),
        "ApiVersions 3 without a body": (framed(header(18, 3, flexible=True)), API_VERSIONS, 3),
        "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", METADATA, 0),
        "TLS": (bytes.fromhex("16030100c8010000c40303") + bytes(100), METADATA, 0),
        "SASL handshake": (framed(header(17, 1, flexible=False) + b"\0\x05PLAIN"), METADATA, 0),
    }
    for api_key, name in INTERNAL.items():
        table[f"{name}, not for clients"] = (framed(header(api_key, 0, flexible=False) + bytes(20)), METADATA, 0)
    return table
