"""`strandline contract` as a user has it: plans, drift, checks, exports, and an apply that can be killed."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.conftest import CommandLine, Ended
from tests.cli.group_reader import GroupReader, settle
from tests.cli.test_secured_cluster import file_of
from tests.clients.client import until
from tests.clients.positions import commit, write
from tests.secured_node import SecuredNode, secured_node

from strandline.testing import embedded


class Files:
    """Contracts of a test, in a directory, and the command that reads them."""

    def __init__(self, directory: Path, cli: CommandLine) -> None:
        self.directory = directory
        self.cli = cli

    def write(self, **content: Any) -> str:
        path = self.directory / "contract.yaml"
        path.write_text(json.dumps(content))
        return str(path)

    def apply(self, *options: str, **content: Any) -> Ended:
        return self.cli.ok("contract", "apply", self.write(**content), "--yes", *options)

    def steps(self, file: str) -> list[tuple[str, str]]:
        objects = self.cli.ok("contract", "plan", file, "--json").objects
        return [(each["action"], each["name"]) for each in objects if "action" in each]


@pytest.fixture
def name() -> str:
    return f"contract-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def files(tmp_path: Path, cli: CommandLine) -> Files:
    return Files(tmp_path, cli)


def test_a_topic_from_file_to_cluster(files: Files, cli: CommandLine, name: str) -> None:
    file = files.write(
        owner="shop",
        topics=[
            {
                "name": name,
                "partitions": 4,
                "replication": 1,
                "retention": "2d",
                "retention_size": "10 MiB",
                "cleanup": ["compact", "delete"],
                "settings": {"max.message.bytes": 2_000_000},
                "lag": {"billing": "90s", "search": "500 records"},
            }
        ],
    )
    assert files.steps(file) == [("create", f"topic {name}")]
    refused = cli.run("contract", "apply", file)
    assert refused.status == 2
    assert "say --yes" in refused.stderr
    assert name not in "\n".join(cli.ok("topic", "list").lines)
    text = cli.ok("contract", "apply", file, "--yes").stdout.decode()
    assert f"+ create topic {name}\n" in text
    assert "      retention.ms: 172800000 (2 days)\n" in text
    assert text.endswith("applied 1 step\n")
    assert files.steps(file) == []
    assert cli.ok("contract", "apply", file).lines == ["nothing to do: the cluster is as the contract says"]
    found = {each["name"]: each["value"] for each in cli.ok("config", "get", "--topic", name, "--json").objects}
    assert found["strandline.owner"] == "shop"
    assert found["strandline.lag.objectives"] == "billing=90000ms,search=500"
    assert cli.ok("contract", "diff", file).lines[-1].startswith("no drift")


def test_drift_is_found_and_taken_back(files: Files, cli: CommandLine, name: str) -> None:
    topic = {"name": name, "partitions": 1, "retention": "7d"}
    files.apply(topics=[topic])
    cli.ok("config", "set", "--topic", name, "retention.ms=9999999", "flush.mode=ack", "--yes")
    file = files.write(topics=[topic])
    drift = cli.run("contract", "diff", file)
    assert drift.status == 5
    assert drift.lines[0] == f"topic {name} differs"
    assert {"  - flush.mode: ack", "  + flush.mode: the default (auto)"} <= set(drift.lines)
    assert {"  - retention.ms: 9999999", "  + retention.ms: 604800000 (1 week)"} <= {
        line.replace("9999999 (9,999,999 ms)", "9999999") for line in drift.lines
    }
    cli.ok("contract", "apply", file, "--yes")
    assert files.steps(file) == []


def test_what_takes_something_away_is_asked_for(files: Files, cli: CommandLine, bootstrap: str, name: str) -> None:
    files.apply(topics=[{"name": name, "retention": "7d"}])
    write(bootstrap, name, 5)
    shorter = files.write(topics=[{"name": name, "retention": "1h"}])
    refused = cli.run("contract", "apply", shorter, "--yes")
    assert refused.status == 2
    assert "--allow-destroy" in refused.stderr
    assert "! takes away: records older than 1 hour will be deleted" in refused.stdout.decode()
    gone = files.write(topics=[{"name": name, "state": "absent"}])
    refused = cli.run("contract", "apply", gone, "--yes")
    assert refused.status == 2
    assert "takes away: the topic and every record in it: up to 5 records" in refused.stdout.decode()
    assert files.steps(gone) == [("delete", f"topic {name}")]
    declined = cli.on_terminal(["contract", "apply", gone], typed=b"y\nn\n").stdout.decode()
    assert "Do that, too?" in declined
    assert files.steps(gone), "a yes to the plan is no yes to what it takes away"
    cli.ok("contract", "apply", gone, "--yes", "--allow-destroy")
    assert files.steps(gone) == []


def test_what_cannot_be_done(files: Files, cli: CommandLine, name: str) -> None:
    files.apply(topics=[{"name": name, "partitions": 3}])
    fewer = files.write(topics=[{"name": name, "partitions": 2}])
    ended = cli.run("contract", "plan", fewer)
    assert ended.status == 1
    assert "x cannot be done: partitions cannot be taken away: 3 -> 2" in ended.stdout.decode()
    assert cli.run("contract", "check", fewer).status == 5
    too_many = files.write(topics=[{"name": f"{name}-b", "replication": 3}])
    ended = cli.run("contract", "apply", too_many, "--yes")
    assert ended.status == 1
    assert "1 step cannot be done" in ended.stderr
    unknown = files.write(topics=[{"name": name, "settings": {"retention.days": 3}}])
    assert "Unknown topic config name: retention.days" in cli.run("contract", "plan", unknown).stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topics:\n  - name: a\n    partition: 3\n", ":3: an entry of topics has no field 'partition': did you mean"),
        ("topic:\n  - name: a\n", ":1: a contract has no field 'topic': did you mean 'topics'?"),
        ("topics:\n  - name: a\n    retention: 7\n", ":3: retention: '7' is no duration"),
        ("topics:\n  - name: a\n    lag: {g: 100}\n", ":3: the objective of g: '100' is no objective; write"),
        ("topics:\n  - name: a\n  - name: a\n", ":3: a is declared twice, first in"),
        ("topics:\n  - name: a\n    settings:\n      strandline.owner: me\n", ":4: write owner of the topic instead"),
        (
            "topics:\n  - name: a\n    retention: 1d\n    settings: {retention.ms: 5}\n",
            ": write retention of the topic",
        ),
        ("topics:\n  - name: a\n    settings: {segment.bytes: 5}\n", ": segment.bytes='5' is not allowed"),
        ("topics: {name: a}\n", ":1: topics is a list"),
        ("acls:\n  - {user: a, principal: User:b}\n", ":2: rights need user"),
        ("acls:\n  - user: a\n    rules: [{operation: fly, topic: t}]\n", ":3: there is no operation 'fly'"),
        ("quotas:\n  - {user: a, fetch: 10 GB/h}\n", ":2: --fetch '10 GB/h' is no quota"),
        ("quotas:\n  - {address: 1.2.3.4, fetch: 10 MB/s}\n", ":2: fetch is no quota of address 1.2.3.4"),
        ("# nothing\n", " has no contract"),
    ],
)
def test_a_wrong_contract(lonely_cli: CommandLine, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "contract.yaml"
    file.write_text(text)
    ended = lonely_cli.run("contract", "plan", str(file))
    assert ended.status == 2
    assert str(file) in ended.stderr
    assert words in ended.stderr


def test_a_directory_is_one_contract(files: Files, cli: CommandLine, name: str) -> None:
    (files.directory / "a").mkdir()
    for part in ("a/one", "two"):
        path = files.directory / f"{part}.yaml"
        path.write_text(f"topics:\n  - name: {name}-{path.stem}\n---\nquotas: []\n")
    cli.ok("contract", "apply", str(files.directory), "--yes")
    assert {f"{name}-one", f"{name}-two"} <= {line.split()[0] for line in cli.ok("topic", "list").lines}
    (files.directory / "three.yml").write_text(f"topics: [{{name: {name}-one}}]\n")
    assert "declared twice" in cli.run("contract", "plan", str(files.directory)).stderr


# Readers that are there now


def breaks(files: Files, cli: CommandLine, **content: Any) -> list[str]:
    ended = cli.run("contract", "check", files.write(**content), "--json")
    found = [each["breaks"] for each in ended.objects if "breaks" in each]
    assert ended.status == (5 if found else 0), ended.stderr
    return found


def test_a_retention_below_the_lag_of_a_group(files: Files, cli: CommandLine, bootstrap: str, name: str) -> None:
    files.apply(topics=[{"name": name, "retention": "7d"}])
    write(bootstrap, name, 10, age_ms=7_200_000)
    commit(bootstrap, f"g-{name}", name, 4)
    assert breaks(files, cli, topics=[{"name": name, "retention": "3h"}]) == []
    (text,) = breaks(files, cli, topics=[{"name": name, "retention": "1h"}])
    assert text.startswith(f"group g-{name} is 2 h")
    assert "a retention of 1 h deletes what it has not read" in text
    (text,) = breaks(files, cli, topics=[{"name": name, "retention": "7d", "retention_size": "1 B"}])
    assert "retention.bytes=1 deletes a part of them" in text
    commit(bootstrap, f"g-{name}", name, 10)
    assert breaks(files, cli, topics=[{"name": name, "retention": "1h"}]) == []


def test_readers_of_a_topic_that_changes_or_goes(files: Files, cli: CommandLine, bootstrap: str, name: str) -> None:
    files.apply(topics=[{"name": name, "partitions": 1}])
    write(bootstrap, name, 3)
    group = f"g-{name}"
    with GroupReader(bootstrap, group, name) as reader:
        settle([reader], until=lambda: reader.owned == [0])
        assert breaks(files, cli, topics=[{"name": name, "partitions": 2}]) == [], "records have no keys"
        (text,) = breaks(files, cli, topics=[{"name": name, "partitions": 2, "key": "order_id"}])
        assert text.startswith(f"group {group} reads {name} by key: with 1 more partition keys move")
        write(bootstrap, name, 1, key=b"k")
        assert len(breaks(files, cli, topics=[{"name": name, "partitions": 2}])) == 1
        (text,) = breaks(files, cli, topics=[{"name": name, "state": "absent"}])
        assert text == f"group {group} reads {name} now (1 member), and it would be deleted"
    until("the member is gone", lambda: not breaks(files, cli, topics=[{"name": name, "state": "absent"}]))


# Lag objectives


def test_objectives_become_alert_rules_and_show_in_lag(
    files: Files, cli: CommandLine, bootstrap: str, name: str
) -> None:
    group = f'g"{name}'
    topic = {"name": name, "owner": "shop", "lag": {group: "1h", "other": "5 records"}}
    file = files.write(topics=[topic])
    cli.ok("contract", "apply", file, "--yes")
    rules = yaml.safe_load(cli.ok("contract", "alerts", file).stdout)["groups"][0]["rules"]
    assert [each["alert"] for each in rules] == ["StrandlineLagObjectiveMissed", "StrandlineLagUnknown"] * 2
    by_group = {each["labels"]["consumergroup"]: each for each in rules if "Missed" in each["alert"]}
    selector = f'{{consumergroup="g\\"{name}",topic="{name}"}}'
    assert by_group[group]["expr"] == f"max(strandline_group_lag_seconds{selector}) > 3600"
    assert by_group["other"]["expr"].endswith(f'topic="{name}"}}) > 5')
    assert by_group[group]["labels"]["owner"] == "shop"
    write(bootstrap, name, 10, age_ms=7_200_000)
    commit(bootstrap, group, name, 4)
    (found,) = cli.ok("group", "lag", group, "--window", "0", "--json").objects
    assert (found["objective_seconds"], found["objective_met"]) == (3600, False)
    assert cli.ok("group", "lag", group, "--window", "0").lines[-1].endswith("1 h, missed")
    commit(bootstrap, group, name, 10)
    (found,) = cli.ok("group", "lag", group, "--window", "0", "--json").objects
    assert found["objective_met"] is True


# An apply that is killed


def test_an_apply_that_is_killed_is_completed_by_the_next(files: Files, cli: CommandLine, name: str) -> None:
    names = [f"{name}-{number:02}" for number in range(20)]
    file = files.write(topics=[{"name": each, "partitions": 2, "retention": "1d"} for each in names])
    process = cli.start("contract", "apply", file, "--yes")
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith(b"done: create"):
                break
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    left = files.steps(file)
    assert 0 < len(left) < 20
    cli.ok("contract", "apply", file, "--yes")
    assert files.steps(file) == []


# Every contract


NAMES = st.sampled_from(["a", "b.c", "d_e", "no", "12", "x-1"])
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "flush.mode": st.sampled_from(["auto", "ack", "async"]),
        "max.message.bytes": st.integers(1000, 10**7),
        "min.cleanable.dirty.ratio": st.sampled_from(["0.5", 0.25, "1.0"]),
        "unclean.leader.election.enable": st.booleans(),
        "compression.type": st.sampled_from(["producer", "zstd"]),
        "segment.ms": st.integers(10**6, 10**9),
        "min.insync.replicas": st.just(1),
    },
)
TOPICS = st.fixed_dictionaries(
    {"name": NAMES, "partitions": st.just(2)},
    optional={
        "owner": st.sampled_from(["shop", "über: die 'Kasse'", "no", "7"]),
        "retention": st.integers(1, 10**10).map(lambda number: f"{number}ms") | st.just("forever"),
        "retention_size": st.integers(1, 10**13).map(lambda number: f"{number} B"),
        "cleanup": st.sampled_from(["delete", "compact", ["compact", "delete"]]),
        "lag": st.dictionaries(
            st.sampled_from(["billing", "a=b", "on", "c d"]), st.sampled_from(["1s", "90min", "7 records"]), max_size=3
        ),
        "settings": SETTINGS,
    },
)
QUOTAS = st.fixed_dictionaries(
    {"user": st.sampled_from(["u1", "no"])},
    optional={
        "client": st.sampled_from(["c", "12"]),
        "fetch": st.integers(1, 10**12).map(lambda number: f"{number} B/s"),
        "produce": st.sampled_from(["10 MB/s", "1 MiB/s", "1500 B/s"]),
        "requests": st.sampled_from(["12.5%", "200%"]),
    },
)
CONTRACTS = st.fixed_dictionaries(
    {
        "topics": st.lists(TOPICS, min_size=1, max_size=3, unique_by=lambda each: each["name"]),
        "quotas": st.lists(QUOTAS, max_size=2, unique_by=lambda each: (each["user"], each.get("client"))),
    }
)


def prefixed(contract: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {**contract, "topics": [{**each, "name": f"{prefix}.{each['name']}"} for each in contract["topics"]]}


def check_round_trip(files: Files, name: str, contracts: list[dict[str, Any]]) -> None:
    cli = files.cli
    for contract in contracts:
        file = files.write(**prefixed(contract, name))
        cli.ok("contract", "apply", file, "--yes", "--allow-destroy")
        assert files.steps(file) == []
        exported = files.directory / "exported.yaml"
        cli.ok("contract", "export", str(exported), "--force")
        assert files.steps(str(exported)) == []


ONE_NODE = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.mark.slow
@settings(max_examples=3, **ONE_NODE)  # type: ignore[arg-type]
@given(st.lists(CONTRACTS, min_size=2, max_size=2))
def test_after_an_apply_a_plan_and_an_export_are_empty(
    files: Files, name: str, contracts: list[dict[str, Any]]
) -> None:
    check_round_trip(files, name, contracts)


@pytest.mark.slow
@settings(max_examples=60, **ONE_NODE)  # type: ignore[arg-type]
@given(st.lists(CONTRACTS, min_size=2, max_size=3))
def test_after_many_applies_a_plan_and_an_export_are_empty(
    files: Files, name: str, contracts: list[dict[str, Any]]
) -> None:
    check_round_trip(files, name, contracts)


def test_an_export_to_a_directory(files: Files, cli: CommandLine, name: str) -> None:
    files.apply(topics=[{"name": name, "retention": "5d"}])
    directory = files.directory / "all"
    cli.ok("contract", "export", f"{directory}/")
    assert "retention: 5d" in (directory / f"{name}.yaml").read_text()
    assert files.steps(str(directory)) == []
    assert cli.run("contract", "export", str(directory)).status == 2
    only = cli.ok("contract", "export", "--topic", name).stdout.decode()
    assert yaml.safe_load(only) == {"topics": [{"name": name, "partitions": 1, "replication": 1, "retention": "5d"}]}
    assert cli.run("contract", "export", "--topic", f"{name}x").status == 3


# Rights


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.fixture
def secured(node: SecuredNode, tmp_path: Path) -> Files:
    cli = CommandLine(node.bootstrap)
    cli.environ["STRANDLINE_COMMAND_CONFIG"] = node.file(node.admin, "admin.properties")
    return Files(tmp_path, cli)


def test_rights_and_quotas(secured: Files) -> None:
    cli = secured.cli
    rights = {
        "user": "billing",
        "read": ["orders", "paid.*"],
        "groups": ["billing"],
        "rules": [
            {"operation": "describe-configs", "topic": "orders"},
            {"operation": "write", "topic": "orders", "permission": "deny", "host": "10.0.0.7"},
            {"operation": "describe", "group": "odd*", "pattern": "literal"},
        ],
    }
    quotas = [{"default": "user", "fetch": "10 MB/s"}, {"user": "billing", "client": "batch", "requests": "50%"}]
    secured.apply("--allow-destroy", acls=[rights], quotas=quotas)
    file = secured.write(acls=[rights], quotas=quotas)
    assert secured.steps(file) == []
    exported = secured.directory / "exported.yaml"
    cli.ok("contract", "export", str(exported))
    assert secured.steps(str(exported)) == []
    entry = yaml.safe_load(exported.read_text())["acls"][0]
    assert (entry["read"], entry["groups"]) == (["orders", "paid.*"], ["billing"])
    cli.ok("acl", "grant", "--user", "billing", "--write", "elsewhere")
    assert cli.run("contract", "diff", file).status == 5
    left_alone = secured.write(acls=[{**rights, "exact": False}])
    assert secured.steps(left_alone) == []
    secured.apply("--allow-destroy", acls=[rights], quotas=[{"default": "user"}])
    assert secured.steps(secured.write(acls=[rights], quotas=[{"default": "user"}])) == []
    assert not any("elsewhere" in line for line in cli.ok("acl", "list").lines)


def test_an_applier_keeps_its_own_rights(secured: Files, node: SecuredNode) -> None:
    cli = secured.cli
    cli.ok("user", "create", "ops", "--password-file", "-", stdin=b"ops secret\n")
    cluster = [{"operation": each, "cluster": True} for each in ("alter", "describe", "describe-configs", "create")]
    own = {"user": "ops", "rules": [*cluster, {"operation": "all", "topic": "shop.*"}]}
    secured.apply(acls=[own])
    ops = Files(secured.directory, CommandLine(node.bootstrap))
    ops.cli.environ["STRANDLINE_COMMAND_CONFIG"] = file_of(node, "ops", "ops secret")
    ops.apply(acls=[own], topics=[{"name": "shop.orders"}])
    without = secured.write(acls=[{"user": "ops", "rules": own["rules"][1:]}])
    for options in (("--yes",), ("--yes", "--allow-destroy")):
        ended = ops.cli.run("contract", "apply", without, *options)
        assert ended.status == 1
        assert "refused: this would take rights from User:ops, who applies it: ALTER on the cluster" in ended.stderr
    assert ops.cli.run("contract", "check", without).status == 5
    denied = {**own, "rules": [*own["rules"], {"operation": "read", "topic": "shop.orders", "permission": "deny"}]}
    ended = ops.cli.run("contract", "apply", ops.write(acls=[denied]), "--yes", "--allow-destroy")
    assert "READ on topic shop.orders" in ended.stderr
    everyone = {"user": "*", "rules": [{"operation": "all", "topic": "*", "permission": "deny"}]}
    assert ops.cli.run("contract", "apply", ops.write(acls=[everyone]), "--yes", "--allow-destroy").status == 1
    narrower = {**own, "rules": own["rules"][:3] + own["rules"][4:]}
    ended = ops.cli.run("contract", "apply", ops.write(acls=[narrower]), "--yes", "--allow-destroy")
    assert "CREATE on the cluster" in ended.stderr
    assert ops.steps(ops.write(acls=[own])) == [], "nothing of all that was done"
    secured.apply("--allow-destroy", acls=[narrower])
    assert secured.steps(secured.write(acls=[narrower])) == [], "another administrator may"


def test_an_applier_with_a_certificate_names_itself(secured: Files, node: SecuredNode) -> None:
    rights = {"user": "guest", "read": ["news"]}
    secured.apply(acls=[rights])
    store = str(node.authority.issue("operator"))
    settings = {**node.admin, "security.protocol": "SSL", "ssl.keystore.location": store}
    operator = CommandLine(f"127.0.0.1:{node.mutual_port}")
    operator.environ["STRANDLINE_COMMAND_CONFIG"] = node.file(settings, "operator.properties")
    file = secured.write(acls=[{"user": "guest"}])
    refused = operator.run("contract", "apply", file, "--yes", "--allow-destroy")
    assert refused.status == 2
    assert "--principal" in refused.stderr
    operator.ok("contract", "apply", file, "--yes", "--allow-destroy", "--principal", "User:CN=operator")
    assert secured.steps(file) == []


@pytest.mark.slow
def test_rights_of_a_connected_group(secured: Files, node: SecuredNode) -> None:
    cli = secured.cli
    rights = {"user": "reader", "read": ["news"], "groups": ["readers"]}
    secured.apply(topics=[{"name": "news"}], acls=[rights])
    cli.ok("produce", "news", stdin=b"one\n")
    without = [{"user": "reader", "read": ["news"]}]
    assert breaks(secured, cli, acls=without) == []
    process = cli.start("consume", "news", "--group", "readers", "--follow")
    try:
        until("the group reads", lambda: bool(breaks(secured, cli, acls=without)))
        (text,) = breaks(secured, cli, acls=without)
        assert text == "User:reader may no longer read as group readers, which has 1 member now"
        topicless = breaks(secured, cli, acls=[{"user": "reader", "groups": ["readers"]}])
        assert len(topicless) == 1
        assert topicless[0].startswith("User:reader may no longer read news, which group readers reads now")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_a_reader_without_the_right_to_read_settings(secured: Files, node: SecuredNode) -> None:
    cli = secured.cli
    cli.ok("user", "create", "plain", "--password-file", "-", stdin=b"plain secret\n")
    secured.apply(topics=[{"name": "diary"}], acls=[{"user": "plain", "read": ["diary"], "groups": ["plain"]}])
    plain = CommandLine(node.bootstrap)
    plain.environ["STRANDLINE_COMMAND_CONFIG"] = file_of(node, "plain", "plain secret")
    plain.ok("group", "reset", "plain", "--topic", "diary", "--to-latest", "--yes")
    (found,) = plain.ok("group", "lag", "plain", "--window", "0", "--json").objects
    assert (found["lag"], "objective_met" in found) == (0, False)
    ended = plain.run("advise", "--topic", "diary", "--json")
    assert ended.status == 0, ended.stderr
    rule = next(each for each in ended.objects[0]["rules"] if each["rule"] == 5)
    assert "min_insync_replicas" in rule["why"], "what may not be read is unknown"


def test_a_cluster_without_an_authorizer(files: Files, cli: CommandLine) -> None:
    ended = cli.run("contract", "plan", files.write(acls=[{"user": "a", "read": ["t"]}]))
    assert ended.status == 1
    assert "no authorizer" in ended.stderr


@pytest.mark.slow
def test_replicas_in_a_cluster(tmp_path: Path) -> None:
    with embedded(nodes=3) as cluster:
        files = Files(tmp_path, CommandLine(cluster.bootstrap))
        files.apply(topics=[{"name": "orders", "partitions": 2, "replication": 1}])
        write(cluster.bootstrap, "orders", 10)
        file = files.write(topics=[{"name": "orders", "partitions": 2, "replication": 3}])
        assert files.steps(file) == [("change", "topic orders")]
        files.cli.ok("contract", "apply", file, "--yes", "--timeout", "60")
        assert files.steps(file) == []
        # Brokers set min.insync.replicas of a new topic with three replicas, which is no drift.
        new = files.write(topics=[{"name": "paid", "replication": 3}])
        files.cli.ok("contract", "apply", new, "--yes")
        assert files.steps(new) == []
        assert "min.insync.replicas" in files.cli.ok("contract", "export", "--topic", "paid").stdout.decode()
