"""The stream of binlog events behind a GTID position.

    | time (4) | type (1) | server id (4) | size (4) | end in the file (4) | flags (2) | body |

Packets are cut out of a buffer that is filled with large reads, because a packet is often a few dozen bytes.
"""

from __future__ import annotations

import ssl
import struct
import time
import zlib
from typing import Final, NamedTuple

import pymysql
from pymysql.constants import COMMAND

from strandline.cdc.mariadb.connection import binlog_gone, close, connect, explained, failure_of, query, server_name
from strandline.cdc.mariadb.gtid import GtidPosition
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.table_map import packed_int
from strandline.connect.failures import RetriableFailure

QUERY, ROTATE, XID, TABLE_MAP, HEARTBEAT, XA_PREPARE = 2, 4, 16, 19, 27, 38
ANNOTATE_ROWS, GTID = 160, 162
WRITES: Final = frozenset((23, 30))
UPDATES: Final = frozenset((24, 31))
DELETES: Final = frozenset((25, 32))
ROWS: Final = WRITES | UPDATES | DELETES
_COMPRESSED: Final = {165: QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_ROWS_WITH_EXTRA: Final = frozenset((30, 31, 32, 169, 170, 171))
_QUERY_HEAD: Final = struct.Struct("<IIBHH")
_HEADER: Final = struct.Struct("<IBIIIH")
_HEARTBEAT_S: Final = 5.0
_SILENCE_S_MAX: Final = 60.0
_READ_BYTES: Final = 256 * 1024
_PACKET_BYTES_MAX: Final = 0xFFFFFF
_FORMAT_DESCRIPTION: Final = 15
_CHECKSUM_BYTES: Final = 4
_SEND_ANNOTATIONS: Final = 2
_CAPABILITY: Final = 4
"""A replica that knows GTID events."""


class BinlogEvent(NamedTuple):
    """One event; `position` is where it begins in its file."""

    type: int
    timestamp_s: int
    server_id: int
    position: int
    end: int
    body: bytes


class BinlogStream:
    """A connection on which the server sends its binlog."""

    def __init__(self, config: MariadbCdcConfig, position: GtidPosition, server_id: int | None = None) -> None:
        """Begin behind a position. Raise BinlogGone, also later, if the server does not have it any more."""
        self._server_id = config.server_id if server_id is None else server_id
        self._config = config
        self._buffer = bytearray()
        self._at = 0
        self._has_checksums = False
        self._timeout_s: float | None = None
        self._heard_s = time.monotonic()
        self._connection = connect(config)
        try:
            with explained(config):
                self._begin(position)
        except BaseException:
            self.close()
            raise

    def _begin(self, position: GtidPosition) -> None:
        connection = self._connection
        ((checksum,),) = query(connection, "select @@global.binlog_checksum")
        self._has_checksums = checksum != "NONE"
        query(connection, "set @master_binlog_checksum=%s, @mariadb_slave_capability=%s", checksum, _CAPABILITY)
        # The server would wait for such a position, and then skip what comes until it.
        ((written,),) = query(connection, "select @@global.gtid_binlog_pos")
        if position.is_ahead_of(GtidPosition.parse(written or "")):
            raise binlog_gone(self._config, f"it has written {written or 'nothing'}, which is before {position}")
        query(connection, "set @master_heartbeat_period=%s", int(_HEARTBEAT_S * 1e9))
        query(connection, "set @slave_connect_state=%s", str(position))
        # A position that the server's own history lacks is an error, instead of a gap.
        query(connection, "set @slave_gtid_strict_mode=1, @slave_gtid_ignore_duplicates=0")
        flags = _SEND_ANNOTATIONS if self._config.include_query else 0
        connection._execute_command(COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", 4, flags, self._server_id))
        self._socket = connection._sock

    def close(self) -> None:
        """Close the connection without a word, because the server does not listen while it sends."""
        if self._connection._sock is not None:
            self._connection._force_close()
        close(self._connection)

    def next(self, timeout_s: float) -> BinlogEvent | None:
        """Return the next event; None if none comes within the time."""
        packet = self._packet(timeout_s)
        if packet is None:
            if time.monotonic() - self._heard_s > _SILENCE_S_MAX:
                raise RetriableFailure(f"{server_name(self._config)} has sent no heartbeat for {_SILENCE_S_MAX:.0f} s")
            return None
        if packet[0] == 0xFF:
            raise failure_of(_error_of(packet), self._config)
        if packet[0] == 0xFE:
            raise RetriableFailure(f"{server_name(self._config)} has ended the binlog stream")
        timestamp, kind, server_id, size, end, _ = _HEADER.unpack_from(packet, 1)
        if kind == _FORMAT_DESCRIPTION:
            # Each file may differ; this event always has room for a checksum.
            self._has_checksums = packet[-1 - _CHECKSUM_BYTES] == 1
        if self._has_checksums:
            self._check(packet)
        body = packet[1 + _HEADER.size : -_CHECKSUM_BYTES if self._has_checksums else None]
        if kind in _COMPRESSED:
            body, kind = _uncompressed(kind, body), _COMPRESSED[kind]
        return BinlogEvent(kind, timestamp, server_id, max(end - size, 0), end, body)

    def _check(self, packet: bytes) -> None:
        found = int.from_bytes(packet[-_CHECKSUM_BYTES:], "little")
        if zlib.crc32(memoryview(packet)[1:-_CHECKSUM_BYTES]) != found:
            raise RetriableFailure(f"{server_name(self._config)} has sent a binlog event with a wrong checksum")

    def _packet(self, timeout_s: float) -> bytes | None:
        """Return the next packet, which the protocol cuts into parts of 16 MiB."""
        found: list[bytes] = []
        offset = 0
        while True:
            if not self._has(offset + 4, timeout_s):
                return None
            at = self._at + offset
            size = int.from_bytes(self._buffer[at : at + 3], "little")
            if not self._has(offset + 4 + size, timeout_s):
                return None
            at = self._at + offset + 4
            found.append(bytes(memoryview(self._buffer)[at : at + size]))
            offset += 4 + size
            if size < _PACKET_BYTES_MAX:
                break
        self._at += offset
        return found[0] if len(found) == 1 else b"".join(found)

    def _has(self, size: int, timeout_s: float) -> bool:
        """Fill the buffer until it has so many unread bytes. Return False if they do not come within the time."""
        while len(self._buffer) - self._at < size:
            if self._timeout_s != timeout_s:
                self._socket.settimeout(timeout_s)
                self._timeout_s = timeout_s
            try:
                received = self._socket.recv(_READ_BYTES)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                return False
            except OSError as error:
                raise failure_of(error, self._config) from error
            if not received:
                raise RetriableFailure(f"{server_name(self._config)} has closed the connection")
            self._heard_s = time.monotonic()
            if self._at:
                del self._buffer[: self._at]
                self._at = 0
            self._buffer += received
        return True


def _error_of(packet: bytes) -> pymysql.OperationalError:
    """Return the error of a packet: 0xFF, the code (2), # and a state (5), the text."""
    text = packet[9:] if packet[3:4] == b"#" else packet[3:]
    return pymysql.OperationalError(int.from_bytes(packet[1:3], "little"), text.decode("utf-8", "replace"))


def _uncompressed(kind: int, body: bytes) -> bytes:
    """Return the body of an event that `log_bin_compress` has compressed.

    Only what follows the head is compressed: a byte with the size of the length in its low three bits, the length, and
    a stream of zlib.
    """
    if _COMPRESSED[kind] == QUERY:
        _, _, database_size, _, variables_size = _QUERY_HEAD.unpack_from(body)
        start = _QUERY_HEAD.size + variables_size + database_size + 1
    else:
        _, _, start = rows_head(kind, body)
    return body[:start] + zlib.decompress(body[start + 1 + (body[start] & 7) :])


def rows_head(kind: int, body: bytes) -> tuple[int, int, int]:
    """Return how many columns a rows event has, where the bitmaps of its columns begin, and where its rows begin."""
    at = 8
    if kind in _ROWS_WITH_EXTRA:
        at += int.from_bytes(body[8:10], "little")
    count, at = packed_int(body, at)
    images = 2 if _COMPRESSED.get(kind, kind) in UPDATES else 1
    return count, at, at + (count + 7) // 8 * images


def query_parts(body: bytes) -> tuple[int, str, str]:
    """Return the thread, the default database and the text of a query event."""
    thread, _, database_size, _, variables_size = _QUERY_HEAD.unpack_from(body)
    at = _QUERY_HEAD.size + variables_size
    end = at + database_size
    return thread, body[at:end].decode("utf-8", "replace"), body[end + 1 :].decode("utf-8", "replace")
