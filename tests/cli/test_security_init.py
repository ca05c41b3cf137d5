"""`strandline security init`, `dev --secure` and `embedded(secure=True)`: a secured node in one word."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.cli.conftest import COMMAND, CommandLine
from tests.cli.test_local_clusters import line_of
from tests.cli.test_nodes import status_of, wait_for

import strandline
from strandline.client.security import ClientSecurity
from strandline.config.properties import parse_properties
from strandline.local.free_ports import free_port

TIMEOUT_S = 60


def read(path: Path) -> dict[str, Any]:
    return dict(parse_properties(path.read_text()))


def test_the_files_make_a_node_that_admits_its_administrator(lonely_cli: CommandLine, tmp_path: Path) -> None:
    kit, data, port = tmp_path / "kit", tmp_path / "data", free_port()
    made = lonely_cli.ok("security", "init", "--dir", str(kit), "--host", "broker-1.example.com", "--json")
    secret = [path.name for path in kit.iterdir() if stat.S_IMODE(path.stat().st_mode) == 0o600]
    assert sorted([*secret, "ca.pem"]) == made.objects[0]["files"]
    again = lonely_cli.run("security", "init", "--dir", str(kit))
    assert (again.status, "files of an earlier run" in again.stderr) == (1, True)

    config = ("--config", str(kit / "server.properties"), "--data", str(data))
    mutual_port = free_port()
    listeners = f"listeners=SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{mutual_port}"
    scram = ("--add-scram", f"@{kit / 'admin.scram'}")
    lonely_cli.ok("format", "--cluster-id", "new", *config, *scram, "-X", listeners)
    serving = lonely_cli.start("serve", *config, "-X", listeners, "-X", "http.listener=off")
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline().startswith(b"ready ")
        for name in ("admin.properties", "librdkafka.properties"):
            given = ("-b", f"127.0.0.1:{port}", "--command-config", str(kit / name))
            assert lonely_cli.ok("topic", "list", *given).status == 0
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0} | read(kit / "librdkafka.properties")
        assert set(AdminClient(settings).list_topics(timeout=TIMEOUT_S).topics) <= {"__strandline_audit"}
        spark = read(kit / "spark.properties")
        assert {name.removeprefix("kafka."): text for name, text in spark.items()} == read(kit / "admin.properties")
        by_certificate = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(kit / "ca.pem"),
            "ssl.keystore.location": str(kit / "admin.pem"),
        }
        words = [word for name, text in by_certificate.items() for word in ("-X", f"{name}={text}")]
        lonely_cli.ok("topic", "create", "orders", "-b", f"127.0.0.1:{mutual_port}", *words)
        password = read(kit / "librdkafka.properties")["sasl.password"]
        assert password.encode() not in Path(f"/proc/{serving.pid}/cmdline").read_bytes()
    finally:
        serving.terminate()
        serving.communicate(timeout=TIMEOUT_S)


def test_an_embedded_broker_is_secured_in_one_word(tmp_path: Path) -> None:
    with strandline.embedded(secure=True, data=tmp_path / "data") as log:
        log.create_topic("orders")
        producer = Producer(log.client_config)
        producer.produce("orders", b"paid")
        assert producer.flush(TIMEOUT_S) == 0
        plain = AdminClient({"bootstrap.servers": log.bootstrap, "log_level": 0})
        with pytest.raises(KafkaException):
            plain.list_topics(timeout=2)
        password = log.client_config["sasl.password"]
        assert password.encode() not in Path(f"/proc/{log.pid}/cmdline").read_bytes()
    # The same certificates and passwords on the same directory.
    with strandline.embedded(secure=True, data=tmp_path / "data") as log:
        assert log.client_config["sasl.password"] == password
        consumer = Consumer(log.client_config | {"group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        message = consumer.poll(TIMEOUT_S)
        assert (message is not None and message.value()) == b"paid"
        consumer.close()


def test_a_plain_broker_has_settings_for_clients_too() -> None:
    with strandline.embedded() as log:
        assert log.client_config == {"bootstrap.servers": log.bootstrap}
        assert log.command_config is None


@pytest.mark.slow
@pytest.mark.lengthy("three nodes start, and one of them twice")
def test_an_embedded_cluster_is_secured_in_one_word(tmp_path: Path, lonely_cli: CommandLine) -> None:
    with strandline.embedded(nodes=3, secure=True, data=tmp_path / "data") as cluster:
        cluster.create_topic("orders", partitions=3)
        producer = Producer(cluster.client_config)
        producer.produce("orders", b"paid", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        leader = cluster.leader_of("orders")
        cluster.kill(leader)
        producer.produce("orders", b"sent", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        cluster.start(leader)
        # The administrator came with the format of the nodes, and every listener is secured: also that of controllers.
        assert cluster.command_config is not None
        given = ("-b", cluster.bootstrap_servers, "--command-config", cluster.command_config)
        status = lonely_cli.ok("security", "status", *given, "--json").stdout
        assert (b"SASL_SSL" in status, b"PLAINTEXT" in status) == (True, False)
        plain = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        with pytest.raises(KafkaException):
            plain.list_topics(timeout=2)
        password = cluster.client_config["sasl.password"]
        for node in cluster.nodes.values():
            assert password.encode() not in Path(f"/proc/{node.pid}/cmdline").read_bytes()


def test_a_secured_broker_runs_by_a_virtual_clock() -> None:
    session = {"connections.max.reauth.ms": "60000"}
    with strandline.embedded(clock="virtual", secure=True, properties=session) as log:
        log.create_topic("orders", retention_ms=86_400_000)
        producer = Producer(log.client_config)
        for value in (b"paid", b"sent"):
            producer.produce("orders", value)
            assert producer.flush(TIMEOUT_S) == 0
            # Sessions end meanwhile by the clock of the broker; clients connect and log in again.
            log.clock.advance(hours=1)
        wrong = {**log.client_config, "sasl.password": "wrong", "log_level": 0}
        with pytest.raises(KafkaException):
            AdminClient(wrong).list_topics(timeout=2)


def test_dev_is_secured_in_one_word(lonely_cli: CommandLine) -> None:
    arguments = [*COMMAND, "dev", "--secure", "--port", "0", "--json"]
    dev = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
    try:
        assert dev.stdout is not None
        told = json.loads(dev.stdout.readline())
        given = ("-b", told["bootstrap"], "--command-config", told["command_config"])
        lonely_cli.ok("topic", "create", "orders", *given)
        assert any("orders" in line for line in lonely_cli.ok("topic", "list", *given).lines)
        # The registry beside it knows the same users.
        wait_for(lambda: status_of(f"{told['registry']}/subjects") == 401)
        login = ClientSecurity.of(read(Path(told["command_config"]))).librdkafka()
        user = f"{quote(login['sasl.username'], safe='')}:{quote(login['sasl.password'], safe='')}@"
        lonely_cli.environ["STRANDLINE_REGISTRY"] = told["registry"].replace("://", f"://{user}")
        wait_for(lambda: lonely_cli.run("schema", "list", "--json").status == 0)
    finally:
        dev.terminate()
        dev.communicate(timeout=TIMEOUT_S)
    assert not Path(told["command_config"]).exists()


@pytest.mark.slow
@pytest.mark.lengthy("three nodes start, and one of them twice")
def test_a_cluster_of_dev_is_secured_in_one_word(lonely_cli: CommandLine, tmp_path: Path) -> None:
    data = tmp_path / "data"
    dev = lonely_cli.start("dev", "--secure", "--nodes", "3", "--port", "0", "--json", "--data", str(data))
    try:
        told = json.loads(line_of(dev))
        assert Path(told["command_config"]).parent == tmp_path / "data-security"
        given = ("-b", told["bootstrap"], "--command-config", told["command_config"])
        lonely_cli.ok("topic", "create", "orders", "--partitions", "3", *given)
        lonely_cli.ok("produce", "orders", *given, stdin=b"paid\n")
        status = lonely_cli.ok("security", "status", *given, "--json").stdout
        assert (b"SASL_SSL" in status, b"PLAINTEXT" in status) == (True, False)
        plain = AdminClient({"bootstrap.servers": told["bootstrap"], "log_level": 0})
        with pytest.raises(KafkaException):
            plain.list_topics(timeout=2)
        password = read(Path(told["command_config"]).with_name("librdkafka.properties"))["sasl.password"]
        for node in told["nodes"]:
            assert password.encode() not in Path(f"/proc/{node['pid']}/cmdline").read_bytes()
        os.kill(told["nodes"][2]["pid"], signal.SIGKILL)
        assert json.loads(line_of(dev)) == {"event": "was killed by SIGKILL, and stays dead", "node": 3}
        deadline = time.monotonic() + TIMEOUT_S
        # librdkafka waits for the dead broker if it asked before another one led.
        while (ended := lonely_cli.run("consume", "orders", "--from", "earliest", "--json", *given)).status:
            assert time.monotonic() < deadline, ended.stderr
        assert [record["value"] for record in ended.objects] == ["paid"]
        assert lonely_cli.ok("dev", "restart", "3", "--data", str(data)).lines == ["node 3 is started again"]
        assert json.loads(line_of(dev)) == {"event": "is started again", "node": 3}
    finally:
        dev.terminate()
        _, errors = dev.communicate(timeout=TIMEOUT_S)
    assert dev.returncode == 0, errors
    for each in (tmp_path / "data").glob("*.log"):
        assert password not in each.read_text()


def test_a_directory_that_was_made_plain_has_no_administrator(lonely_cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{}")
    ended = lonely_cli.run("dev", "--secure", "--nodes", "3", "--port", "0", "--data", str(tmp_path))
    assert (ended.status, "was made without --secure" in ended.stderr) == (1, True)
