"""Messages of syslog: RFC 5424, RFC 3164 and what else devices send, and their framing on TCP (RFC 6587)."""

from __future__ import annotations

import datetime
import re
from typing import Any, Final
from zoneinfo import ZoneInfo

from strandline.connect import schema
from strandline.connect.schema import ConnectType, Schema

_INT: Final = Schema(ConnectType.INT32, optional=True)
_TEXT: Final = schema.OPTIONAL_STRING
SYSLOG_SCHEMA: Final = schema.struct(
    {
        "format": schema.STRING,
        "facility": _INT,
        "severity": _INT,
        "timestamp": schema.TIMESTAMP_SCHEMA.as_optional(),
        "host": _TEXT,
        "app": _TEXT,
        "procid": _TEXT,
        "msgid": _TEXT,
        "structured_data": schema.map_of(schema.STRING, schema.map_of(schema.STRING, schema.STRING), optional=True),
        "message": schema.STRING,
        "remote": _TEXT,
        "raw": schema.OPTIONAL_BYTES,
    },
    name="strandline.Syslog",
    version=1,
)
"""`format` is rfc5424, rfc3164, or raw for a line that is neither; `raw` has the bytes if the fields lack some."""

_PRIORITY: Final = re.compile(r"<(0|[1-9][0-9]{0,2})>", re.ASCII)
_PRIORITY_MAX: Final = 191
_RFC5424: Final = re.compile(
    r"1 (-|[0-9T:.Z+-]{1,40}) ([!-~]{1,255}) ([!-~]{1,48}) ([!-~]{1,128}) ([!-~]{1,32}) (?=[-\[])", re.ASCII
)
_ELEMENT: Final = re.compile(r"\[([!#-<>-\\^-~]{1,32})((?: [!#-<>-\\^-~]{1,32}=\"(?:[^\"\\\]]|\\.)*\")*) ?\]", re.S)
_PARAMETER: Final = re.compile(r" ([!#-<>-\\^-~]{1,32})=\"((?:[^\"\\\]]|\\.)*)\"", re.S)
_ESCAPED: Final = re.compile(r"\\([\"\\\]])")
_RFC3164_TIME: Final = re.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([ 0-9][0-9]) ([0-2][0-9]):([0-5][0-9]):([0-6][0-9]) ", re.ASCII
)
_ISO_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,18}(?:Z|[+-][0-9]{2}:?[0-9]{2})?) ", re.ASCII)
_HOST: Final = re.compile(r"([!-~]{1,255}) ", re.ASCII)
_TAG: Final = re.compile(r"([^\s:\[\]]{1,64})(?:\[([^\]\s]{1,64})\])?: ?")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = datetime.timedelta(days=1)


def parse_syslog(line: bytes, remote: str | None, now: datetime.datetime, zone: ZoneInfo) -> dict[str, Any]:
    """Return a message as the value of SYSLOG_SCHEMA. Every line has one."""
    try:
        text = line.decode("utf-8")
        raw = None
    except UnicodeDecodeError:
        text, raw = line.decode("utf-8", "replace"), line
    value: dict[str, Any] = dict.fromkeys(each.name for each in SYSLOG_SCHEMA.fields)
    value |= {"format": "raw", "message": text, "remote": remote, "raw": line}
    found = _PRIORITY.match(text)
    if found is None or int(found[1]) > _PRIORITY_MAX:
        return value
    facility, severity = divmod(int(found[1]), 8)
    rest = text[found.end() :]
    fields = _rfc5424(rest) or _rfc3164(rest, now, zone)
    return value | {"facility": facility, "severity": severity, "raw": raw} | fields


def _rfc5424(text: str) -> dict[str, Any] | None:
    """Return the fields behind the priority; None if the text is no RFC 5424."""
    found = _RFC5424.match(text)
    if found is None:
        return None
    try:
        timestamp = None if found[1] == "-" else datetime.datetime.fromisoformat(found[1])
    except ValueError:
        return None
    if timestamp is not None and timestamp.tzinfo is None:
        return None
    elements: dict[str, dict[str, str]] = {}
    place = found.end()
    if text[place] == "-":
        place += 1
    while element := _ELEMENT.match(text, place):
        pairs = elements.setdefault(element[1], {})
        for name, escaped in _PARAMETER.findall(element[2]):
            # A name may come again, as `ip` of the element `origin`.
            value = _ESCAPED.sub(r"\1", escaped)
            pairs[name] = f"{pairs[name]},{value}" if name in pairs else value
        place = element.end()
    if place < len(text) and text[place] != " ":
        return None
    host, app, procid, msgid = (None if found[each] == "-" else found[each] for each in range(2, 6))
    return {
        "format": "rfc5424",
        "timestamp": timestamp,
        "host": host,
        "app": app,
        "procid": procid,
        "msgid": msgid,
        "structured_data": elements or None,
        "message": text[place + 1 :].removeprefix("\ufeff"),
    }


def _rfc3164(text: str, now: datetime.datetime, zone: ZoneInfo) -> dict[str, Any]:
    """Return the fields behind the priority, as far as there are some: the RFC only describes what is common."""
    fields: dict[str, Any] = {"format": "rfc3164", "message": text}
    timestamp, place = _old_time(text, now, zone)
    if timestamp is None:
        return fields
    fields["timestamp"] = timestamp
    tag = _TAG.match(text, place)
    host = _HOST.match(text, place)
    # Without a host, as a program writes to its own machine, the tag with its colon comes first.
    if host is not None and (tag is None or host.end() < tag.end()):
        fields["host"] = host[1]
        place = host.end()
        tag = _TAG.match(text, place)
    if tag is not None:
        fields |= {"app": tag[1], "procid": tag[2]}
        place = tag.end()
    return fields | {"message": text[place:]}


def _old_time(text: str, now: datetime.datetime, zone: ZoneInfo) -> tuple[datetime.datetime | None, int]:
    """Return the time at the begin of a text, and where it ends. A time without a year is of the last 364 days."""
    iso = _ISO_TIME.match(text)
    try:
        if iso is not None:
            made = datetime.datetime.fromisoformat(iso[1])
            return made if made.tzinfo is not None else made.replace(tzinfo=zone), iso.end()
        found = _RFC3164_TIME.match(text)
        if found is None:
            return None, 0
        month, day = _MONTHS.index(found[1]) + 1, int(found[2])
        hour, minute, second = (int(found[each]) for each in (3, 4, 5))
        # A clock that is ahead by less than a day is of this year, or of the next one on the last evening.
        for year in range((now + _DAY).year, now.year - 5, -1):
            if day == 29 and month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
                continue
            # A leap second has no time of its own here.
            made = datetime.datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone)
            if made <= now + _DAY:
                return made, found.end()
    except ValueError:
        pass
    return None, 0


class SyslogFrames:
    """Splits the bytes of a TCP connection: octet counting or lines, decided at each frame."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._is_skipping = False
        self.too_long = 0
        """Lines that were cut because they are longer than the bound."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the messages that are whole. Raise ValueError for a frame that is too long."""
        self._buffer += data
        found: list[bytes] = []
        while (message := self._next()) is not None:
            if message:
                found.append(message)
        return found

    def end(self) -> list[bytes]:
        """Return what is left when the connection ends: a line without its end; half of a counted frame is lost."""
        left, self._buffer = bytes(self._buffer), bytearray()
        is_counted = re.match(rb"[1-9][0-9]{0,6} ", left) is not None
        return [] if is_counted or self._is_skipping or not left.strip() else [left]

    def _next(self) -> bytes | None:
        buffer = self._buffer
        if not self._is_skipping and buffer[:1].isdigit():
            head = re.match(rb"([1-9][0-9]{0,6}) ", buffer[:8])
            if head is not None:
                size, start = int(head[1]), head.end()
                if size > self._bytes_max:
                    raise ValueError(f"a message of {size} bytes, and message.max.bytes is {self._bytes_max}")
                if len(buffer) < start + size:
                    return None
                message = bytes(buffer[start : start + size])
                del buffer[: start + size]
                return message.rstrip(b"\r\n\0")
            if len(buffer) < 8 and b"\n" not in buffer:
                return None
        end = buffer.find(b"\n")
        if end < 0:
            if len(buffer) <= self._bytes_max:
                return None
            return self._cut()
        message = bytes(buffer[:end])
        del buffer[: end + 1]
        if self._is_skipping:
            self._is_skipping = False
            return b""
        return message[: self._bytes_max].rstrip(b"\r\0")

    def _cut(self) -> bytes | None:
        """Return the begin of a line that is too long, and skip the rest of it."""
        message = bytes(self._buffer[: self._bytes_max])
        self._buffer.clear()
        if self._is_skipping:
            return None
        self._is_skipping = True
        self.too_long += 1
        return message
