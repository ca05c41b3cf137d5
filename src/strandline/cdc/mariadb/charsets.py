"""MariaDB's character sets as functions that decode bytes."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final

Decode = Callable[[bytes], str]
BINARY: Final = "binary"
_CODECS: Final = {
    "ascii": "latin_1",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf_16_be",
    "ujis": "euc_jp",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}


def decoder(charset: str) -> Decode | None:
    """Return the function that decodes a character set; None if it is not known.

    Bytes without a character become the one with the same number, as MariaDB's latin1 has it, or U+FFFD.
    """
    name = _CODECS.get(charset)
    if name is None:
        return None
    decode = codecs.lookup(name).decode
    if charset == "latin1":
        return _decode_latin1
    return lambda data: decode(data, "replace")[0]


def _decode_latin1(data: bytes) -> str:
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        # Python's cp1252 lacks five bytes that MariaDB's latin1 has as control characters.
        return "".join(_LATIN1[each] for each in data)


_LATIN1: Final = [
    chr(each) if each in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes((each,)).decode("cp1252") for each in range(256)
]
