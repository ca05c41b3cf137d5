"""RedisSink: records as keys of Redis or Valkey, each exactly once.

A batch is one script that the server runs alone, as it runs MULTI/EXEC, in one round trip. The script compares the
owner of each partition with the task that calls, writes the records that are not there yet, and stores the offset
behind them in the same step. So neither a repeated batch nor a task that was replaced writes anything.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

import redis as client
from redis.backoff import NoBackoff
from redis.retry import Retry

from strandline.connect import config as settings
from strandline.connect.config import Long, Password, option
from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.document_id import key_bytes, key_text
from strandline.connect.sinks.plain_json import json_bytes, value_bytes
from strandline.connect.sinks.record_template import RecordTemplate, template_problem
from strandline.connect.sinks.redis_script import CLAIM, OFFSETS, OWNERS, REPLACED, WRITE, Command, RedisChunk
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey

_ARGUMENTS_MAX: Final = 1_000
"""Arguments of one command: a script cannot unpack more than some thousands."""
_NEEDED_TYPE: Final = {"list": "list", "set": "set", "stream": "stream"}
_PASSES: Final = re.compile(r"^(OOM|MISCONF|READONLY|MASTERDOWN|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|NOREPLICAS)\b")
_UNKNOWN: Final = -1
_OWN: Final = (OFFSETS.encode(), OWNERS.encode(), REPLACED.encode())


def _url_problem(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "unix"):
        return "the URL begins with redis://, rediss:// (TLS) or unix://"
    if parts.password is not None or "password=" in parts.query:
        return "a password in the URL would be shown: use the setting password"
    return None


class RedisSink(Sink):
    """Writes records to Redis or Valkey as strings, hashes, lists, sets or streams, each exactly once."""

    keeps_offsets = True

    class Config(settings.Config):
        name: str = option("Name of the connector; its offsets are stored under it.", default="redis-sink")
        url: str = option(
            "Address: redis://host:6379/0, rediss:// for TLS, or unix:///path.", importance="HIGH", check=_url_problem
        )
        username: str | None = option("User of the server's access control list.", default=None)
        password: Password | None = option("Password of the user.", default=None)
        tls_ca_file: str | None = option("Certificates to trust, as a PEM file; without it the system's.", default=None)
        key_format: str = option(
            "Key in Redis, with ${topic}, ${partition}, ${offset}, ${key}, ${key:name} and ${field:name}.",
            default="${key}",
            check=template_problem,
        )
        value_type: Literal["string", "json", "hash", "list", "set", "stream"] = option(
            "What a record becomes.", default="string", importance="HIGH"
        )
        behavior_on_null_values: Literal["delete", "ignore", "fail"] = option(
            "What a tombstone does to its key.", default="delete"
        )
        ttl_seconds: Long | None = option(
            "Life of a key after it was written; for ever by default.", default=None, low=1
        )
        stream_max_length: Long | None = option(
            "Entries that a stream keeps at least; older ones are trimmed. All by default.", default=None, low=1
        )
        timeout_ms: int = option("How long to wait for the server.", default=10_000, low=1)
        rebuild_database: int | None = option(
            "Number of an empty database that a rebuild writes to, before it takes the place of the other.",
            default=None,
            low=0,
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            """A tombstone must not delete a list that other keys share."""
            is_shared = not RecordTemplate(self.key_format).uses("key")
            if is_shared and self.value_type in _NEEDED_TYPE and self.behavior_on_null_values == "delete":
                return [
                    (
                        "behavior.on.null.values",
                        f"key.format {self.key_format} has no ${{key}}, so one tombstone would delete the whole "
                        f"{self.value_type}: use ignore or fail",
                    )
                ]
            return ()

    def __init__(self, config: RedisSink.Config) -> None:
        super().__init__(config)
        self._key = RecordTemplate(config.key_format)
        self._keys = (OFFSETS + config.name, OWNERS + config.name)
        self._owners: dict[TopicPosition, str] = {}
        """The token of this task for each of its partitions."""
        self._known: dict[TopicPosition, int] = {}
        """The offsets that the server has confirmed."""
        self._redis: client.Redis | None = None
        self._replaces: int | None = None
        """The database that this one is to take the place of."""

    def open(self) -> None:
        self._redis = _connected(self.config, self.paths, self.config.url)
        self._claim_script = self._redis.register_script(CLAIM)
        self._write_script = self._redis.register_script(WRITE)
        self._call(self._redis.ping)
        if self._replaces is not None:
            self._check_fresh()

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()
            self._redis = None

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        """Take the partitions: from now on the server rejects what an earlier task writes to them."""
        for each in partitions:
            self._claim(each)
        return {each: self._known[each] for each in partitions if self._known[each] != _UNKNOWN}

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set where to go on, None for what the group's offset says. Tasks that run are fenced out."""
        assert self._redis is not None
        stored, owners = self._keys
        pipeline = self._redis.pipeline(transaction=True)
        for each, offset in offsets.items():
            pipeline.hset(owners, _name(each), uuid.uuid4().hex)
            if offset is None:
                pipeline.hdel(stored, _name(each))
            else:
                pipeline.hset(stored, _name(each), str(offset))
        self._call(pipeline.execute)

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        for each in partitions:
            self._owners.pop(each, None)
            self._known.pop(each, None)

    def write(self, batch: SinkBatch) -> None:
        # Every record is looked at before the first is sent, so a bad one leaves the whole batch to be written again.
        chunks = list(self._chunks(batch))
        if chunks:
            chunks[-1].partitions |= batch.ends
        for chunk in chunks:
            self._send(chunk)

    def expected(self, record: SinkRecord) -> ExpectedRow:
        config: RedisSink.Config = self.config
        if config.value_type in _NEEDED_TYPE or config.behavior_on_null_values != "delete":
            raise InvalidConnectorConfig(
                "only value.type string, json and hash with behavior.on.null.values=delete can be compared with a topic"
            )
        first = self._commands(record)[0]
        key = TargetKey("redis", (key_text(self._key.fill(record)),))
        if record.is_tombstone:
            return ExpectedRow(key, None)
        if config.value_type != "hash":
            return ExpectedRow(key, row_digest(first[2]))
        fields = _fields(record.value, record)
        row = dict(zip(fields[::2], fields[1::2], strict=True))
        return ExpectedRow(key, row_digest(row) if row else None)

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        asked = list(keys)
        found = self._rows([key_bytes(each.key[0]) for each in asked])
        return {key: row_digest(row) for key, row in zip(asked, found, strict=True) if row not in (None, {})}

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every key that begins as `key.format` does; without such a beginning, every key of the database."""
        assert self._redis is not None
        pattern = re.sub(rb"([\\*?\[\]])", rb"\\\1", self._key.beginning) + b"*"
        cursor: Any = None
        seen: set[bytes] = set()
        while cursor != 0:
            cursor, found = self._call(self._redis.scan, cursor or 0, pattern, 1000)
            # The server may return a key twice.
            names = [each for each in found if not each.startswith(_OWN) and each not in seen]
            seen.update(names)
            for name, row in zip(names, self._rows(names), strict=True):
                if row not in (None, {}):
                    yield TargetKey("redis", (key_text(name),)), row_digest(row)

    def _rows(self, names: Sequence[bytes]) -> Sequence[Any]:
        """Return the strings or hashes of keys; None or an empty one if there is none, an error for another type."""
        assert self._redis is not None
        pipeline = self._redis.pipeline(transaction=False)
        for each in names:
            (pipeline.hgetall if self.config.value_type == "hash" else pipeline.get)(each)
        found: Sequence[Any] = self._call(pipeline.execute, False)
        return found

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        """Return a sink for the database of `rebuild.database`; the suffix has no meaning here."""
        number = self.config.rebuild_database
        if number is None or number == database_of(self.config.url):
            raise InvalidConnectorConfig(
                "set rebuild.database to the number of an empty database, to write there first"
            )
        properties = self.config.properties | {"url": with_database(self.config.url, number)}
        fresh = type(self)(self.Config(properties))
        fresh.paths = self.paths
        fresh._replaces = database_of(self.config.url)
        return fresh

    def _check_fresh(self) -> None:
        """Refuse a database that holds something else."""
        assert self._redis is not None
        if self._call(self._redis.exists, REPLACED):
            raise ConnectFailed("rebuild.database holds the data that was replaced last time: drop it first")
        if self._call(self._redis.dbsize) and not self._call(self._redis.exists, *self._keys):
            raise ConnectFailed("rebuild.database is not empty: use the number of an empty database")
        with _connected(self.config, self.paths, with_database(self.config.url, self._replaces or 0)) as old:
            found = self._call(lambda: set(old.scan_iter(f"{OFFSETS}*", 1000)))
        others = sorted(each.decode().removeprefix(OFFSETS) for each in found - {self._keys[0].encode()})
        if others:
            raise ConnectFailed(
                f"a rebuild exchanges whole databases, and this one is also that of {', '.join(others)}"
            )

    def swap(self) -> None:
        """Exchange the two databases, with everything that is in them."""
        redis, number = self._fresh()
        pipeline = redis.pipeline(transaction=True)
        pipeline.swapdb(number, self.config.rebuild_database)
        # The connection stays with the number, where the old data is now.
        pipeline.set(REPLACED, self.config.name)
        self._call(pipeline.execute)

    def discard(self) -> None:
        redis, _ = self._fresh()
        if not self._call(redis.exists, REPLACED):
            self._call(redis.flushdb)

    def drop_old(self) -> None:
        if self.config.rebuild_database is None:
            return
        old = _connected(self.config, self.paths, with_database(self.config.url, self.config.rebuild_database))
        with old:
            # The data of another connector is not ours to remove.
            if self._call(old.get, REPLACED) == self.config.name.encode():
                self._call(old.flushdb)

    def _fresh(self) -> tuple[client.Redis, int]:
        if self._redis is None or self._replaces is None:
            raise ConnectFailed("this is no fresh target that is open")
        return self._redis, self._replaces

    def _chunks(self, batch: SinkBatch) -> Iterator[RedisChunk]:
        needed_type = _NEEDED_TYPE.get(self.config.value_type, "")
        chunk = RedisChunk()
        for record in batch:
            if chunk.is_full:
                yield chunk
                chunk = RedisChunk()
            chunk.add(record, needed_type, self._commands(record))
        if chunk.records:
            yield chunk

    def _send(self, chunk: RedisChunk) -> None:
        head: list[bytes | str | int] = [len(chunk.partitions)]
        for partition, behind in chunk.partitions.items():
            if partition not in self._owners:
                self._claim(partition)
            head += (_name(partition), self._owners[partition], self._known[partition], behind)
        outcome, *details = self._call(self._write_script, self._keys, [*head, *chunk.arguments])
        match outcome:
            case b"fenced":
                raise FencedOut(f"another task writes {details[0].decode()} to Redis by now")
            case b"lost":
                raise ConnectFailed(
                    f"Redis has lost the latest offsets of {details[0].decode()}, and maybe data: restart the task, "
                    "which writes again from the offset that is stored"
                )
            case b"type":
                record = chunk.records[int(details[0])]
                raise RecordFailed(
                    f"the key of the record of {record.place} holds a {details[1].decode()} in Redis, not a "
                    f"{self.config.value_type}",
                    record,
                )
        for partition, behind in chunk.partitions.items():
            self._known[partition] = max(behind, self._known[partition])

    def _claim(self, partition: TopicPosition) -> None:
        token = uuid.uuid4().hex
        found = self._call(self._claim_script, self._keys, [_name(partition), token])
        self._owners[partition] = token
        self._known[partition] = _UNKNOWN if found is None else int(found)

    def _commands(self, record: SinkRecord) -> Sequence[Command]:
        config: RedisSink.Config = self.config
        key = self._key.fill(record)
        if key.startswith(_OWN):
            raise RecordFailed(f"the key of the record of {record.place} is one that holds offsets", record)
        if record.is_tombstone:
            if config.behavior_on_null_values == "fail":
                raise RecordFailed(f"the record of {record.place} has no value", record)
            return [("DEL", key)] if config.behavior_on_null_values == "delete" else []
        commands = self._writing(key, record)
        if config.ttl_seconds is not None and config.value_type not in ("string", "json"):
            commands.append(("EXPIRE", key, config.ttl_seconds))
        return commands

    def _writing(self, key: bytes, record: SinkRecord) -> list[Command]:
        config: RedisSink.Config = self.config
        value = record.value
        match config.value_type:
            case "string" | "json":
                text = value_bytes(value, record) if config.value_type == "string" else json_bytes(value, record)
                return [
                    ("SET", key, text) if config.ttl_seconds is None else ("SET", key, text, "EX", config.ttl_seconds)
                ]
            case "list":
                return [("RPUSH", key, value_bytes(value, record))]
            case "set":
                return [("SADD", key, value_bytes(value, record))]
            case "hash":
                if not isinstance(value, Mapping):
                    raise RecordFailed(f"the value of the record of {record.place} has no fields for a hash", record)
                made: list[Command] = [("DEL", key)]
                fields = _fields(value, record)
                for first in range(0, len(fields), _ARGUMENTS_MAX):
                    made.append(("HSET", key, *fields[first : first + _ARGUMENTS_MAX]))
                return made
        entry = _fields(value, record) if isinstance(value, Mapping) else [b"value", value_bytes(value, record)]
        if not 0 < len(entry) <= _ARGUMENTS_MAX * 2:
            raise RecordFailed(
                f"the value of the record of {record.place} has {len(entry) // 2} fields: an entry of a stream "
                f"has 1 to {_ARGUMENTS_MAX}",
                record,
            )
        limit = () if config.stream_max_length is None else ("MAXLEN", "~", config.stream_max_length)
        return [("XADD", key, *limit, "*", *entry)]

    def _call(self, method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except (client.AuthenticationError, client.exceptions.AuthorizationError) as error:
            raise ConnectFailed(f"Redis rejects the user or the password: {error}") from None
        except (client.ConnectionError, client.TimeoutError, OSError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise ConnectFailed(f"the certificate of {self.config.url} is not trusted: {error}") from None
            raise RetriableFailure(f"Redis at {self.config.url} cannot be reached: {error}") from None
        except client.exceptions.OutOfMemoryError as error:
            raise RetriableFailure(f"Redis at {self.config.url} is full: {error}") from None
        except client.RedisError as error:
            kind = RetriableFailure if _PASSES.match(str(error)) or _is_passing(error) else ConnectFailed
            raise kind(f"Redis at {self.config.url} rejects the write: {error}") from None


def _is_passing(error: client.RedisError) -> bool:
    # The client removes the code from the text of errors that it has a class for.
    passing = (client.ReadOnlyError, client.exceptions.ClusterDownError, client.exceptions.MasterDownError)
    return isinstance(error, passing)


def _connected(config: RedisSink.Config, paths: PathRules, url: str) -> client.Redis:
    seconds = config.timeout_ms / 1000
    options: dict[str, Any] = {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        # The worker repeats a batch, and says so; the client would repeat it silently.
        "retry": Retry(NoBackoff(), 0),
        "client_name": "strandline",
    }
    if config.username is not None:
        options["username"] = config.username
    if config.password is not None:
        options["password"] = str(config.password)
    if config.tls_ca_file is not None and config.url.startswith("rediss:"):
        options["ssl_ca_certs"] = str(paths.check(config.tls_ca_file))
    if config.url.startswith("unix:"):
        paths.check(urlsplit(config.url).path)
    return client.Redis.from_url(url, **options)


def database_of(url: str) -> int:
    """Return the number of the database that a URL names."""
    parts = urlsplit(url)
    named = parse_qs(parts.query).get("db", [parts.path.strip("/") if parts.scheme != "unix" else ""])[0]
    return int(named) if named.isdigit() else 0


def with_database(url: str, number: int) -> str:
    """Return the URL of another database of a server."""
    parts = urlsplit(url)
    query = urlencode([each for each in parse_qsl(parts.query) if each[0] != "db"] + [("db", str(number))])
    return urlunsplit((parts.scheme, parts.netloc, parts.path if parts.scheme == "unix" else "", query, ""))


def row_digest(row: Any) -> bytes:
    """Return a digest of a string or of a hash; a key of another type has one that no record has."""
    if isinstance(row, client.RedisError):
        return b"another type"
    made = sha256()
    for part in [row] if isinstance(row, bytes) else [part for each in sorted(row.items()) for part in each]:
        made.update(len(part).to_bytes(8) + part)
    return made.digest()


def _fields(value: Mapping[Any, Any], record: SinkRecord) -> list[bytes]:
    """Return names and values by turns; fields that are null are left out."""
    made = []
    for name, each in value.items():
        if each is not None:
            made += [value_bytes(name, record), value_bytes(each, record)]
    return made


def _name(partition: TopicPosition) -> str:
    return f"{partition.topic}-{partition.partition}"
