"""The REST API by itself: rights, the way to the leader, passwords, and bodies and names at their limits."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from starlette.types import Scope
from tests.connect.running_worker import served

from strandline.connect import Password, Sink, option
from strandline.connect.config import Config as BaseConfig
from strandline.connect.herder.interface import (
    ConnectorInfo,
    ConnectorStatus,
    LeaderOnly,
    RequestFailed,
    TargetState,
    UnitStatus,
)
from strandline.connect.http.app import BODY_BYTES_MAX, ConnectApp, every_right
from strandline.connect.http.rights import ConnectRight
from strandline.connect.plugins import Plugins
from strandline.connect.records import SourcePosition
from strandline.connect.validation.checks import check

MODULE = __name__
VAULT = f"{MODULE}:Vault"


class Vault(Sink):
    """A sink with a password."""

    class Config(BaseConfig):
        """Its settings."""

        url: str = option("Where it writes to.")
        password: Password | None = option("Of its user.", default=None)


class MemoryHerder:
    """Keeps configs in memory. Changes go to `leader_url` if it has one."""

    def __init__(self, leader_url: str | None = None, *, is_leader: bool = True) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.leader_url = leader_url
        self.is_leader = is_leader
        self.positions: list[SourcePosition] = []
        self.failure: Exception | None = None

    def _lead(self) -> None:
        if self.failure is not None:
            raise self.failure
        if not self.is_leader:
            raise LeaderOnly(self.leader_url)

    def cluster_id(self) -> str:
        return "memory"

    def trouble(self) -> str | None:
        return None

    def connectors(self) -> Sequence[str]:
        return list(self.configs)

    def info(self, name: str) -> ConnectorInfo:
        if name not in self.configs:
            raise RequestFailed(404, f"Connector {name} not found")
        return ConnectorInfo(name, self.configs[name], 1, "sink")

    def task_configs(self, name: str) -> Sequence[Mapping[str, str]]:
        return [self.info(name).config]

    def status(self, name: str) -> ConnectorStatus:
        self.info(name)
        failed = UnitStatus("FAILED", "w:1", "it broke", "1")
        return ConnectorStatus(name, "sink", UnitStatus("RUNNING", "w:1", None, "1"), {0: failed})

    def topics(self, name: str) -> Sequence[str]:
        return []

    async def create(self, name: str, config: Mapping[str, str], state: TargetState = "STARTED") -> ConnectorInfo:
        self._lead()
        check(PLUGINS, config)
        self.configs[name] = dict(config)
        return self.info(name)

    async def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        self._lead()
        is_new = name not in self.configs
        self.configs[name] = dict(config)
        return is_new, self.info(name)

    async def patch_config(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        self._lead()
        merged = {**self.configs[name], **changes}
        self.configs[name] = {key: value for key, value in merged.items() if value is not None}
        return self.info(name)

    async def delete(self, name: str) -> None:
        self._lead()
        self.info(name)
        del self.configs[name]

    async def set_target_state(self, name: str, state: TargetState) -> None:
        self._lead()

    async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        self._lead()
        return self.status(name)

    async def restart_task(self, name: str, task: int) -> None:
        self._lead()

    async def reset_topics(self, name: str) -> None:
        self._lead()

    async def offsets(self, name: str) -> Sequence[SourcePosition]:
        return self.positions

    async def alter_offsets(self, name: str, positions: Sequence[SourcePosition]) -> str:
        self._lead()
        self.positions = list(positions)
        return "done"

    async def reset_offsets(self, name: str) -> str:
        self._lead()
        return "done"

    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        return {}

    async def set_level(self, logger: str, level: str, *, is_cluster_wide: bool) -> Sequence[str] | None:
        self._lead()
        return [logger]


PLUGINS = Plugins([MODULE])


class Reader:
    """The rights of a caller that reads what begins with `open`."""

    def why_denied(self, right: ConnectRight, connector: str | None) -> str | None:
        is_open = connector is not None and connector.startswith("open")
        return None if right is ConnectRight.SEE and is_open else f"{right.name} is denied"


@contextmanager
def api(herder: MemoryHerder, *, is_guarded: bool = False) -> Iterator[str]:
    async def reader(scope: Scope) -> Reader:
        return Reader()

    @asynccontextmanager
    async def made(url: str) -> AsyncIterator[ConnectApp]:
        yield ConnectApp(herder, PLUGINS, reader if is_guarded else every_right)

    with served(made) as url:
        yield url


class Reply(dict[str, Any]):
    """An answer: its status, headers and JSON."""

    status: int
    headers: dict[str, str]
    json: Any


def call(url: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    found = Reply()
    found.status, found.headers = response.status, {name.lower(): value for name, value in response.getheaders()}
    found.json = json.loads(text) if text else None
    return found


def config(**more: str) -> dict[str, str]:
    return {"connector.class": VAULT, "topics": "t", "url": "http://x", **more}


# Passwords


def test_password_is_hidden_wherever_a_config_is_shown() -> None:
    herder = MemoryHerder()
    with api(herder) as url:
        made = call(url, "POST", "/connectors", {"name": "v", "config": config(password="s3cret")})
        assert made.status == 201
        shown = [
            made,
            *(call(url, "GET", f"/connectors{each}") for each in ("/v", "/v/config", "/v/tasks", "?expand=info")),
            call(url, "PUT", "/connectors/v/config", config(password="s3cret")),
            call(url, "PATCH", "/connectors/v/config", {"url": "http://y"}),
            call(url, "PUT", "/connector-plugins/Vault/config/validate", config(name="v", password="s3cret")),
        ]
    assert [each.status for each in shown] == [201, 200, 200, 200, 200, 200, 200, 200]
    texts = [json.dumps(each.json) for each in shown]
    assert all("[hidden]" in each and "s3cret" not in each for each in texts)
    assert herder.configs["v"]["password"] == "s3cret"


def test_password_that_is_sent_back_hidden_stays_as_it_is() -> None:
    herder = MemoryHerder()
    herder.configs["v"] = config(name="v", password="s3cret")
    with api(herder) as url:
        shown = call(url, "GET", "/connectors/v/config").json
        assert call(url, "PUT", "/connectors/v/config", shown | {"url": "http://z"}).status == 200
        assert call(url, "PATCH", "/connectors/v/config", {"password": "[hidden]"}).status == 200
        refused = call(url, "POST", "/connectors", {"name": "w", "config": config(password="[hidden]")})
    assert herder.configs["v"] == config(name="v", password="s3cret", url="http://z")
    assert refused.status == 400
    assert "there is none" in refused.json["message"]


def test_reference_to_a_secret_is_shown_as_it_was_given() -> None:
    herder = MemoryHerder()
    herder.configs["v"] = config(name="v", password="${env:VAULT}")
    with api(herder) as url:
        assert call(url, "GET", "/connectors/v/config").json["password"] == "${env:VAULT}"


def test_secrets_of_clients_and_of_unknown_classes_are_hidden() -> None:
    herder = MemoryHerder()
    herder.configs["v"] = config(name="v", **{"producer.override.sasl.jaas.config": "x password=y"})
    herder.configs["gone"] = {"connector.class": "Gone", "db.password": "y", "db.user": "u"}
    with api(herder) as url:
        first = call(url, "GET", "/connectors/v/config").json
        second = call(url, "GET", "/connectors/gone/config").json
    assert first["producer.override.sasl.jaas.config"] == "[hidden]"
    assert second == {"connector.class": "Gone", "db.password": "[hidden]", "db.user": "u"}


def test_secrets_of_libraries_are_hidden_and_kept() -> None:
    secrets = {
        "catalog.s3.secret-access-key": "s3cret",
        "catalog.TOKEN": "s3cret",
        "catalog.credential": "user:s3cret",
        "catalog.uri": "postgresql://user:s3cret@host/db",
        "storage.azure_storage_account_key": "s3cret",
    }
    plain = {"catalog.type": "rest", "catalog.warehouse": "s3://user@bucket/a:b", "storage.aws_region": "here"}
    reference = {"storage.token": "${env:TOKEN}"}
    herder = MemoryHerder()
    herder.configs["v"] = config(name="v", **secrets, **plain, **reference)
    with api(herder) as url:
        shown = call(url, "GET", "/connectors/v/config").json
        validated = call(url, "PUT", "/connector-plugins/Vault/config/validate", herder.configs["v"])
        assert call(url, "PUT", "/connectors/v/config", shown | {"url": "http://z"}).status == 200
    assert {name: value for name, value in shown.items() if name in secrets} == dict.fromkeys(secrets, "[hidden]")
    assert (plain | reference).items() <= shown.items()
    assert "s3cret" not in json.dumps(validated.json)
    assert herder.configs["v"] == config(name="v", **secrets, **plain, **reference) | {"url": "http://z"}


# Rights


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/connectors/open-1", 200),
        ("GET", "/connectors/closed", 403),
        ("GET", "/connectors/closed/tasks/0/status", 403),
        ("GET", "/connectors/open-1/offsets", 200),
        ("DELETE", "/connectors/open-1", 403),
        ("PUT", "/connectors/open-1/pause", 403),
        ("PUT", "/connectors/open-1/config", 403),
        ("PATCH", "/connectors/open-1/offsets", 403),
        ("POST", "/connectors/open-1/tasks/0/restart", 403),
        ("POST", "/connectors", 403),
        ("PUT", "/connector-plugins/Vault/config/validate", 403),
        ("GET", "/connector-plugins", 200),
        ("GET", "/admin/loggers", 403),
        ("PUT", "/admin/loggers/root", 403),
        ("GET", "/", 200),
    ],
)
def test_each_route_needs_its_right(guarded: str, method: str, path: str, status: int) -> None:
    body = {"name": "open-2", "config": config()} if path == "/connectors" else config(level="INFO")
    assert call(guarded, method, path, None if method == "GET" else body).status == status


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    herder = MemoryHerder()
    herder.configs = {"open-1": config(name="open-1"), "closed": config(name="closed")}
    with api(herder, is_guarded=True) as url:
        yield url


def test_list_shows_what_the_caller_sees(guarded: str) -> None:
    assert call(guarded, "GET", "/connectors").json == ["open-1"]
    assert list(call(guarded, "GET", "/connectors?expand=info").json) == ["open-1"]


# The leader


def test_change_goes_to_the_leader() -> None:
    leader = MemoryHerder()
    with api(leader) as leader_url, api(MemoryHerder(leader_url, is_leader=False)) as url:
        made = call(url, "POST", "/connectors", {"name": "a/b", "config": config()})
        assert (made.status, made.headers["location"]) == (201, "/connectors/a%2Fb")
        assert leader.configs["a/b"]["name"] == "a/b"
        assert call(url, "PUT", "/connectors/a%2Fb/config", config(url="http://q")).status == 200
        assert leader.configs["a/b"]["url"] == "http://q"
        bad = call(url, "POST", "/connectors", {"name": "c", "config": {"connector.class": "No"}})
        assert bad.status == 400
        assert "No" in bad.json["message"]
        assert call(url, "DELETE", "/connectors/a%2Fb").status == 204
    assert leader.configs == {}


def test_two_workers_do_not_send_a_change_in_a_circle() -> None:
    first, second = MemoryHerder(is_leader=False), MemoryHerder(is_leader=False)
    with api(first) as first_url, api(second) as second_url:
        first.leader_url, second.leader_url = second_url, first_url
        found = call(first_url, "DELETE", "/connectors/x")
    assert found.status == 409


def test_change_while_there_is_no_leader_is_409_and_while_it_is_away_500() -> None:
    herder = MemoryHerder(is_leader=False)
    with api(herder) as url:
        assert call(url, "DELETE", "/connectors/x").status == 409
        herder.leader_url = "http://127.0.0.1:1"
        away = call(url, "DELETE", "/connectors/x")
    assert away.status == 500
    assert "can not be reached" in away.json["message"]


def test_credentials_do_not_go_to_a_leader_without_tls() -> None:
    with api(MemoryHerder("http://192.0.2.1:8083", is_leader=False)) as url:
        found = call(url, "DELETE", "/connectors/x", headers={"Authorization": "Basic eA=="})
    assert found.status == 500
    assert "no TLS" in found.json["message"]


# Limits and names


def test_body_is_limited() -> None:
    with api(MemoryHerder()) as url:
        large = {"name": "x", "config": config(more="x" * BODY_BYTES_MAX)}
        assert call(url, "POST", "/connectors", large).status == 413
        small = {"name": "x", "config": config(more="x" * (BODY_BYTES_MAX - 1000))}
        assert call(url, "POST", "/connectors", small).status == 201


@pytest.mark.parametrize("name", ["a/b", "100%", "größe 🦆", "?x#y", "..", "a;b", "%2F"])
def test_any_name_can_be_created_read_and_deleted(name: str) -> None:
    herder = MemoryHerder()
    with api(herder) as url:
        made = call(url, "POST", "/connectors", {"name": name, "config": config()})
        assert made.status == 201
        assert made.json["name"] == name
        path = f"/connectors/{quote(name, safe='')}"
        assert call(url, "GET", f"{path}/config").json["name"] == name
        assert call(url, "GET", made.headers["location"]).json["name"] == name
        assert call(url, "DELETE", path).status == 204
    assert herder.configs == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"offsets": 1}', b'{"offsets": [1]}', b'{"offsets": [{"partition": 1}]}',
     b'{"offsets": [{"partition": {"a": NaN}, "offset": {}}]}', b"[" * 100_000, b'{"a": "\\ud800"}', b"\xff"],
)  # fmt: skip
def test_malformed_positions_are_400(body: bytes) -> None:
    herder = MemoryHerder()
    herder.configs["v"] = config()
    with api(herder) as url:
        assert call(url, "PATCH", "/connectors/v/offsets", body).status == 400
    assert herder.positions == []


def test_failed_task_has_its_trace() -> None:
    herder = MemoryHerder()
    herder.configs["v"] = config()
    with api(herder) as url:
        found = call(url, "GET", "/connectors/v/status").json
    assert "trace" not in found["connector"]
    assert found["tasks"][0] == {"id": 0, "state": "FAILED", "worker_id": "w:1", "version": "1", "trace": "it broke"}
