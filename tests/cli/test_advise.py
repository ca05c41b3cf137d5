"""`strandline advise` as a user has it: the seven worked judgements, and three anti-patterns on a running cluster."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.conftest import CommandLine
from tests.cli.group_reader import GroupReader, settle
from tests.clients.broker import BROKER_PROPERTIES
from tests.clients.positions import commit, write

from strandline.testing import embedded

EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"


def judged(cli: CommandLine, *arguments: str) -> dict[str, Any]:
    found = [each for each in cli.run("advise", *arguments, "--json").objects if each["kind"] == "judgement"]
    assert len(found) == 1
    return found[0]  # type: ignore[no-any-return]


def patterns(cli: CommandLine, *arguments: str) -> dict[str, dict[str, Any]]:
    ended = cli.run("advise", *arguments, "--json")
    found = {each["anti_pattern"]: each for each in ended.objects if each["kind"] == "anti-pattern"}
    assert ended.status == (5 if any(each["found"] for each in found.values()) else 0), ended.stderr
    return found


@pytest.mark.parametrize(
    ("name", "verdict", "deciding"),
    [
        ("clickstream", "log", ["sustained throughput", "fan-out", "replay"]),
        ("order_states", "log-with-view", ["order per key", "fan-out", "audit"]),
        ("account_balance", "database-fed-by-log", ["store gate"]),
        ("payment_check", "rpc", ["reply gate", "two floors", "correlation", "couples"]),
        ("background_tasks", "share-group", ["queue gate"]),
        ("priority_lanes", "routing-broker", ["queue gate", "inherent"]),
        ("webhooks", "managed-queue-or-job-table", ["tiny gate"]),
    ],
)
def test_the_seven_worked_judgements(lonely_cli: CommandLine, name: str, verdict: str, deciding: list[str]) -> None:
    file = str(EXAMPLES / f"{name}.yaml")
    found = judged(lonely_cli, file)
    assert found["verdict"] == verdict
    for words in deciding:
        assert any(words in reason for reason in found["deciding"]), found["deciding"]
    assert lonely_cli.run("advise", file, "--check").status == (0 if found["is_log"] else 5)
    text = lonely_cli.ok("advise", file).stdout.decode()
    assert text.startswith(f"{found['workload']}: {found['sentence']}\n")


def test_figures_have_formula_and_inputs(lonely_cli: CommandLine) -> None:
    figures = {each["figure"]: each for each in judged(lonely_cli, str(EXAMPLES / "clickstream.yaml"))["sizing"]}
    assert figures["partitions"]["value"] == 24
    assert figures["disk"]["value"] == pytest.approx(20e6 * 7 * 86_400 * 3 / 0.7)
    assert figures["network"]["value"] == pytest.approx((20e6 * 2 + 20e6 * 3) / 3)
    assert figures["memory"]["value"] == pytest.approx(20e6 * 3600)
    assert {"name": "write rate", "value": "20 MB/s", "source": "described"} in figures["disk"]["inputs"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workload: a\nwritte: 10 MB/s\n", ":2: a workload has no field 'writte': did you mean 'write'?"),
        ("workload: a\nwrite: 10 MB\n", ":2: write: '10 MB' is no rate; write for example 10 MB/s, 500/s or 3/min"),
        ("workload: a\nretention: 7 moons\n", ":2: retention: '7 moons' is no duration"),
        ("workload: a\nrecord_size: 800\n", ":2: record_size: '800' is no size; write for example 800 B"),
        ("workload: a\norder: keys\n", ":2: order is one of none, key, global, not 'keys': did you mean 'key'?"),
        ("workload: a\nreaders:\n  - name: x\n    member: 3\n", ":4: a reader has no field 'member': did you mean"),
        ("workload: a\naudit: maybe\n", ":2: audit is true or false, not 'maybe'"),
        ("workload: a\nworkload: b\n", ":2: 'workload' stands twice, first in line 1"),
        ("access: stream\n", ":1: a workload needs workload; for example workload: clickstream"),
        ("workload: a\nreaders: &r [x]\nteams: *r\n", ":2: aliases (*name) are not read"),
        ("workload: [a\n", ":2: this is no YAML"),
        ("- a\n", ":1: a workload is a mapping of names to values, not a list"),
    ],
)
def test_a_wrong_description(lonely_cli: CommandLine, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "workload.yaml"
    file.write_text(text)
    ended = lonely_cli.run("advise", str(file))
    assert ended.status == 2
    assert f"{file}{words}" in ended.stderr


def test_what_is_asked_wrongly(lonely_cli: CommandLine, tmp_path: Path) -> None:
    assert lonely_cli.run("advise").status == 2
    assert lonely_cli.run("advise", str(tmp_path / "none.yaml")).status == 3
    assert lonely_cli.run("advise", "--all", "--topic", "t").status == 2


def test_a_log_used_as_a_database(cli: CommandLine, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 40)
    cli.ok("config", "set", "--topic", topic, "retention.ms=-1", "--yes")
    only = patterns(cli, "--topic", topic)["log as a database"]
    assert not only["found"], "that a topic is kept for good is a weak sign"
    group = f"scanner-{uuid.uuid4().hex[:8]}"
    for _ in range(4):
        commit(bootstrap, group, topic, 40)
        commit(bootstrap, group, topic, 0)
    found = patterns(cli, "--topic", topic)["log as a database"]
    assert found["found"]
    assert any(f"group {group} went back to the start 4 times" in sign["text"] for sign in found["signs"])
    assert any("--metrics" in each for each in found["unknown"])
    text = cli.run("advise", "--topic", topic).stdout.decode()
    assert f"{topic}: log as a database\n" in text


def read_all(bootstrap: str, topic: str, count: int) -> None:
    """Read a topic as a look-up without a group does."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    while read < count:
        read += len(consumer.consume(count, 1.0))
    consumer.close()


def test_readers_without_a_group_show_in_the_metrics(topic: str, bootstrap: str) -> None:
    elsewhere = CommandLine(bootstrap)
    with embedded(properties=BROKER_PROPERTIES | {"http.listener": "127.0.0.1:0"}) as broker:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topic", "create", "accounts")
        write(broker.bootstrap, "accounts", 50)
        for _ in range(12):
            read_all(broker.bootstrap, "accounts", 50)
        assert "log as a database" not in patterns(cli, "--topic", "accounts")
        (url,) = re.findall(r"metrics at (http://\S+/metrics)", broker.stderr_text())
        found = patterns(cli, "--topic", "accounts", "--metrics", url)["log as a database"]
        assert any("times over" in sign["text"] for sign in found["signs"])
        assert not found["unknown"]
        wrong = elsewhere.run("advise", "--topic", topic, "--metrics", url)
        assert wrong.status == 2
        assert "is the page of another cluster" in wrong.stderr


def ask_and_answer(bootstrap: str, requests: str, replies: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        name = f"id-{number}"
        producer.produce(requests, b"?", headers={"correlation-id": name, "reply-to": replies})
        producer.produce(replies, b"!", headers={"correlation-id": name})
    assert producer.flush(30) == 0


def test_a_log_used_for_calls(cli: CommandLine, bootstrap: str, topic: str) -> None:
    replies = f"{topic}-replies"
    cli.ok("topic", "create", replies)
    ask_and_answer(bootstrap, topic, replies, 10)
    found = patterns(cli, "--topic", topic)["log as RPC"]
    assert found["found"]
    signs = " ".join(sign["text"] for sign in found["signs"])
    assert f"10 of its last 10 records ask for a reply on {replies}" in signs
    assert f"10 correlation ids are also on {replies}, within" in signs
    assert patterns(cli, "--topic", replies)["log as RPC"]["found"], "the ids show on both sides"


def test_reply_topics_made_for_one_caller_each(cli: CommandLine) -> None:
    base = f"quotes{uuid.uuid4().hex[:6]}.reply"
    names = [f"{base}.{uuid.uuid4().hex[:8]}0" for _ in range(3)]
    cli.ok("topic", "create", *names)
    found = patterns(cli, "--topic", names[0])["log as RPC"]
    assert found["found"]
    assert f"3 reply topics with names made up for one caller each: {base}" in found["signs"][0]["text"]


def test_a_log_used_as_a_task_queue(cli: CommandLine, bootstrap: str) -> None:
    topic = f"tasks-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", topic)
    write(bootstrap, topic, 60)
    group = f"workers-{uuid.uuid4().hex[:8]}"
    with GroupReader(bootstrap, group, topic) as one, GroupReader(bootstrap, group, topic) as two:
        readers = [one, two]
        settle(readers, until=lambda: sum(len(each.owned) for each in readers) == 1)

        def idle() -> list[str]:
            settle(readers, until=lambda: True)
            found = patterns(cli, "--topic", topic).get("log as a task queue on classic groups", {"signs": []})
            return [sign["text"] for sign in found["signs"] if "idle" in sign["text"]]

        deadline = time.monotonic() + 60
        while not (signs := idle()):
            assert time.monotonic() < deadline
            for reader in readers:
                reader.consumer.poll(0.1)
        assert signs == [f"group {group} has 2 members for 1 partition: 1 idle"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    for offset in [*range(30), 20, 25, 21, 25, 22, 25, 23]:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    cli.ok("topic", "create", f"{topic}-retry-1", f"{topic}-retry-2")
    found = patterns(cli, "--topic", topic)["log as a task queue on classic groups"]
    signs = [sign["text"] for sign in found["signs"]]
    assert found["found"]
    assert any(f"group {group} commits single records: 29 of its last" in text for text in signs), signs
    assert any(f"group {group} moved its position back 4 times" in text for text in signs), signs
    assert f"retry topics made by hand: {topic}-retry-1, {topic}-retry-2" in signs


def test_a_sound_topic_shows_no_pattern(cli: CommandLine, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 100)
    group = f"group-{uuid.uuid4().hex[:8]}"
    for offset in (20, 60, 100):
        commit(bootstrap, group, topic, offset)
    assert patterns(cli, "--topic", topic) == {}


def test_a_running_topic_is_measured(cli: CommandLine, bootstrap: str, topic: str, tmp_path: Path) -> None:
    write(bootstrap, topic, 360)
    commit(bootstrap, f"group-{topic}", topic, 360)
    found = judged(cli, "--topic", topic)
    assert {"write", "readers", "partitions", "replicas", "retention_ms"} <= set(found["measured"])
    disk = next(each for each in found["sizing"] if each["figure"] == "disk")
    assert all(each["source"] == "measured" for each in disk["inputs"])
    rules = {each["rule"]: each for each in found["rules"]}
    assert rules[1]["state"] == "broken"
    assert "no owner is set" in rules[1]["why"]
    file = tmp_path / "it.yaml"
    file.write_text("workload: it\naccess: lookup\nwrite: 900 MB/s\nsafety: {owner: me}\n")
    both = judged(cli, str(file), "--topic", topic)
    assert both["verdict"] == "database-fed-by-log"
    assert "900 MB/s" not in str(both["sizing"]), "what was measured wins"
    assert "no owner" not in str(both["rules"])


def test_all_topics_in_one_table(cli: CommandLine, topic: str) -> None:
    ended = cli.run("advise", "--all")
    assert ended.status in (0, 5), ended.stderr
    header = next(line for line in ended.lines if line.startswith("TOPIC"))
    assert header.split()[:3] == ["TOPIC", "PARTITIONS", "ADVISED"]
    assert any(line.split()[:2] == [topic, "3"] for line in ended.lines if line)
    assert cli.run("advise", "--topic", f"{topic}x").status == 3
