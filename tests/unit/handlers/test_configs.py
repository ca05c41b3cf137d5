"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources over every version of their format."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.scenarios.config_cases import APPEND, BROKER, CASES, DELETE, GROUP, LOGGER, METRICS, SET, TOPIC
from tests.unit.handlers.node_of_one import Context, NodeOfOne, ask

from strandline.codec.messages import alter_configs_request as legacy
from strandline.codec.messages import incremental_alter_configs_request as incremental
from strandline.codec.messages.alter_configs_response import AlterConfigsResponse
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.codec.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResponse
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.codec.messages.list_config_resources_request import ListConfigResourcesRequest
from strandline.codec.messages.list_config_resources_response import ListConfigResourcesResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import (
    k19_create_topics,
    k32_describe_configs,
    k33_alter_configs,
    k44_incremental_alter_configs,
    k74_list_config_resources,
)
from strandline.quorum.controller.config_changes import CONFIGS_PER_RESOURCE_MAX, CONFIGURED_RESOURCES_MAX
from strandline.runtime import loggers

Outcome = tuple[int, str, int]
Change = tuple[str, int, str | None]
DEFAULT, STATIC, OF_TOPIC = 5, 4, 1


@pytest.fixture
def node() -> NodeOfOne:
    return node_with_topics("a-topic", "b-topic")


@pytest.fixture(autouse=True)
def quiet_loggers() -> Iterator[None]:
    before = logging.root.level
    logging.getLogger("strandline.of-a-test")
    yield
    logging.root.setLevel(before)
    logging.getLogger("strandline.of-a-test").setLevel(logging.NOTSET)


def node_with_topics(*names: str, **settings: str) -> NodeOfOne:
    node = NodeOfOne(**settings)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    ask(k19_create_topics, node, CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
    return node


def change(
    node: NodeOfOne, *resources: tuple[int, str, list[Change]], version: int = 1, validate_only: bool = False
) -> list[Outcome]:
    request = incremental_request(*resources, validate_only=validate_only)
    response = ask(k44_incremental_alter_configs, node, request, version, IncrementalAlterConfigsResponse)
    for each in response.responses:
        assert (each.error_message is None) == (each.error_code == 0), "a refusal is told in words"
    return [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]


def incremental_request(
    *resources: tuple[int, str, list[Change]], validate_only: bool = False
) -> incremental.IncrementalAlterConfigsRequest:
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=[
                    incremental.AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in changes
                ],
            )
            for kind, resource, changes in resources
        ],
        validate_only=validate_only,
    )


def replace(
    node: NodeOfOne, *resources: tuple[int, str, dict[str, str | None]], version: int = 2, validate_only: bool = False
) -> list[Outcome]:
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=[legacy.AlterableConfig(name=name, value=value) for name, value in settings.items()],
            )
            for kind, resource, settings in resources
        ],
        validate_only=validate_only,
    )
    response = ask(k33_alter_configs, node, request, version, AlterConfigsResponse)
    return [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]


def describe(
    node: NodeOfOne, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **more: Any
) -> tuple[int, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], **more)
    (result,) = ask(k32_describe_configs, node, request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, {config.name: config for config in result.configs}


def test_every_change_is_answered_with_kafkas_code() -> None:
    node = node_with_topics("a-topic")
    wrong = []
    for case in CASES:
        ((_, _, code),) = change(
            node, (case.resource_type, case.resource_name, [(case.name, case.operation, case.value)])
        )
        if code != case.code:
            wrong.append((case, code))
    assert not wrong


@pytest.mark.parametrize("version", [0, 1])
def test_a_change_is_recorded_and_one_bad_resource_spoils_no_other(node: NodeOfOne, version: int) -> None:
    outcomes = change(
        node,
        (TOPIC, "a-topic", [("retention.ms", SET, "5"), ("flush.ms", SET, "6")]),
        (TOPIC, "not-there", [("retention.ms", SET, "5")]),
        (TOPIC, "b-topic", [("retention.ms", SET, "5"), ("segment.bytes", SET, "5")]),
        version=version,
    )
    assert outcomes == [
        (TOPIC, "a-topic", 0),
        (TOPIC, "not-there", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "b-topic", ErrorCode.INVALID_CONFIG),
    ]
    assert node.image.configs == {(TOPIC, "a-topic"): {"retention.ms": "5", "flush.ms": "6"}}
    assert node.image.topics["a-topic"].config_overrides == {"retention.ms": "5", "flush.ms": "6"}


def test_an_alteration_is_not_answered_before_the_disk_has_it(node: NodeOfOne) -> None:
    context = Context(node, 1)
    k44_incremental_alter_configs.handle(context, incremental_request((TOPIC, "a-topic", [("flush.ms", SET, "6")])))
    assert not context.replies
    assert not node.image.configs
    node.flush()
    assert len(context.replies) == 1


def test_a_failed_disk_is_told_and_nothing_is_kept(node: NodeOfOne) -> None:
    context = Context(node, 1)
    k44_incremental_alter_configs.handle(context, incremental_request((TOPIC, "a-topic", [("flush.ms", SET, "6")])))
    node.fail(DiskFailed("no room"))
    assert len(context.replies) == 1
    assert change(node, (TOPIC, "a-topic", [("retention.ms", SET, "5")])) == [(TOPIC, "a-topic", 0)]
    assert node.image.configs == {(TOPIC, "a-topic"): {"retention.ms": "5"}}


def test_two_requests_at_once_both_count(node: NodeOfOne) -> None:
    for raw in ("compact", "delete"):
        request = incremental_request((TOPIC, "a-topic", [("cleanup.policy", APPEND, raw)]))
        k44_incremental_alter_configs.handle(Context(node, 1), request)
    node.flush()
    assert node.image.topics["a-topic"].config_overrides == {"cleanup.policy": "delete,compact"}


def test_what_changes_nothing_writes_nothing(node: NodeOfOne) -> None:
    change(node, (TOPIC, "a-topic", [("flush.ms", SET, "6")]))
    written = len(node.log)
    change(node, (TOPIC, "a-topic", [("flush.ms", SET, "6"), ("retention.ms", DELETE, None)]))
    change(node, (TOPIC, "a-topic", []))
    assert len(node.log) == written


@pytest.mark.parametrize("kind", ["change", "replace"])
def test_validate_only_changes_nothing(node: NodeOfOne, kind: str) -> None:
    if kind == "change":
        good = change(node, (TOPIC, "a-topic", [("flush.ms", SET, "6")]), validate_only=True)
        bad = change(node, (TOPIC, "a-topic", [("flush.ms", SET, "x")]), validate_only=True)
    else:
        good = replace(node, (TOPIC, "a-topic", {"flush.ms": "6"}), validate_only=True)
        bad = replace(node, (TOPIC, "a-topic", {"flush.ms": "x"}), validate_only=True)
    assert (good, bad) == ([(TOPIC, "a-topic", 0)], [(TOPIC, "a-topic", ErrorCode.INVALID_CONFIG)])
    assert not node.image.configs


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_the_whole_set(node: NodeOfOne, version: int) -> None:
    change(node, (TOPIC, "a-topic", [("retention.ms", SET, "5"), ("flush.ms", SET, "6")]))
    assert replace(node, (TOPIC, "a-topic", {"flush.ms": "7"}), version=version) == [(TOPIC, "a-topic", 0)]
    assert node.image.topics["a-topic"].config_overrides == {"flush.ms": "7"}
    assert replace(node, (TOPIC, "a-topic", {}), version=version) == [(TOPIC, "a-topic", 0)]
    assert not node.image.configs


def test_alter_configs_refuses_as_kafka_does(node: NodeOfOne) -> None:
    assert replace(node, (TOPIC, "a-topic", {"retention.ms": None})) == [(TOPIC, "a-topic", ErrorCode.INVALID_REQUEST)]
    assert replace(node, (TOPIC, "a-topic", {"x": "1"})) == [(TOPIC, "a-topic", ErrorCode.INVALID_CONFIG)]
    assert replace(node, (LOGGER, "1", {"root": "INFO"})) == [(LOGGER, "1", ErrorCode.INVALID_REQUEST)]
    assert replace(node, (BROKER, "1", {"num.partitions": "1"})) == [(BROKER, "1", ErrorCode.INVALID_REQUEST)]


def test_a_name_or_a_resource_that_stands_twice(node: NodeOfOne) -> None:
    twice = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert change(node, (TOPIC, "a-topic", list(twice))) == [(TOPIC, "a-topic", ErrorCode.INVALID_REQUEST)]
    outcomes = change(
        node,
        (TOPIC, "a-topic", [("retention.ms", SET, "1")]),
        (TOPIC, "b-topic", [("retention.ms", SET, "1")]),
        (TOPIC, "a-topic", [("flush.ms", SET, "1")]),
    )
    assert [code for _, _, code in outcomes] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]


def test_what_is_kept_is_bounded(node: NodeOfOne) -> None:
    many = [(f"of.a.plugin.{number}", SET, "1") for number in range(CONFIGS_PER_RESOURCE_MAX)]
    assert change(node, (BROKER, "", [*many])) == [(BROKER, "", 0)]
    one_more = change(node, (BROKER, "", [("of.a.plugin.more", SET, "1")]))
    assert one_more == [(BROKER, "", ErrorCode.POLICY_VIOLATION)]
    for number in range(CONFIGURED_RESOURCES_MAX - 1):
        node.image.configs[GROUP, str(number)] = {"share.delivery.count.limit": "3"}
    node.controller.revert(node.image)
    of_group = [("share.delivery.count.limit", SET, "3")]
    assert change(node, (GROUP, "one-more", [*of_group])) == [(GROUP, "one-more", ErrorCode.POLICY_VIOLATION)]
    assert change(node, (GROUP, "7", [("share.delivery.count.limit", SET, "4")])) == [(GROUP, "7", 0)]
    assert change(node, (TOPIC, "a-topic", [("flush.ms", SET, "3")])) == [(TOPIC, "a-topic", 0)]


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_is_described(node: NodeOfOne, version: int) -> None:
    change(node, (TOPIC, "a-topic", [("flush.messages", SET, " 7 ")]))
    code, configs = describe(node, TOPIC, "a-topic", version=version, include_synonyms=True)
    assert code == 0
    mine, other = configs["flush.messages"], configs["segment.bytes"]
    assert (mine.value, mine.config_source, mine.read_only, mine.is_sensitive) == ("7", OF_TOPIC, False, False)
    assert [(each.name, each.value, each.source) for each in mine.synonyms] == [
        ("flush.messages", "7", OF_TOPIC),
        ("log.flush.interval.messages", str(2**63 - 1), DEFAULT),
    ]
    assert (other.value, other.config_source) == ("1073741824", DEFAULT)
    assert mine.config_type == (5 if version >= 3 else 0)
    assert mine.documentation in (None, "")


def test_names_to_choose_and_documentation(node: NodeOfOne) -> None:
    _, configs = describe(node, TOPIC, "a-topic", ["flush.ms", "no.such.name"], include_documentation=True)
    assert list(configs) == ["flush.ms"]
    assert "Flush to disk" in (configs["flush.ms"].documentation or "")
    assert configs["flush.ms"].synonyms == []
    assert len(describe(node, TOPIC, "a-topic", [])[1]) == len(describe(node, TOPIC, "a-topic", None)[1]) > 30


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "not-there", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "5", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(node: NodeOfOne, kind: int, name: str, code: int) -> None:
    assert describe(node, kind, name) == (code, {})


def test_a_broker_tells_its_own_settings_and_which_may_change() -> None:
    node = node_with_topics(num_partitions="3", log_retention_hours="5")
    _, configs = describe(node, BROKER, "1", include_synonyms=True)
    told = configs["num.partitions"]
    assert (told.value, told.config_source, told.read_only, told.config_type) == ("3", STATIC, True, 3)
    assert [(each.value, each.source) for each in told.synonyms] == [("3", STATIC), ("1", DEFAULT)]
    assert configs["log.retention.hours"].value == "5"
    assert configs["log.retention.ms"].value is None
    assert not configs["log.retention.ms"].read_only
    assert configs["log.retention.hours"].read_only
    assert "ssl.provider" not in configs, "what is refused is not here"
    assert configs["ssl.keystore.password"].is_sensitive
    assert configs["background.threads"].value == "10", "without effect, and told"


def test_a_default_under_another_name_is_not_told_as_kafka_does_not() -> None:
    """`log.retention.hours` gives the value, and still neither side calls it a synonym of `log.retention.ms`."""
    node = node_with_topics("a-topic", log_retention_hours="5")
    _, configs = describe(node, TOPIC, "a-topic", ["retention.ms"], include_synonyms=True)
    told = configs["retention.ms"]
    assert (told.value, told.config_source, told.synonyms) == ("18000000", DEFAULT, [])


def test_a_subscription_and_a_group_exist_by_what_is_set(node: NodeOfOne) -> None:
    change(
        node,
        (METRICS, "mine", [("interval.ms", SET, "1000")]),
        (GROUP, "g", [("share.delivery.count.limit", SET, "3")]),
    )
    _, subscription = describe(node, METRICS, "mine", include_synonyms=True)
    assert {name: (each.value, each.config_source) for name, each in subscription.items()} == {
        "interval.ms": ("1000", 7),
        "match": ("", DEFAULT),
        "metrics": ("", DEFAULT),
    }
    _, group = describe(node, GROUP, "g", include_synonyms=True)
    assert (group["share.delivery.count.limit"].value, group["share.delivery.count.limit"].config_source) == ("3", 8)
    session = group["consumer.session.timeout.ms"]
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("group.consumer.session.timeout.ms", "45000", DEFAULT)
    ]


def test_levels_of_loggers_are_told_and_set(node: NodeOfOne) -> None:
    name = "strandline.of-a-test"
    assert change(node, (LOGGER, "1", [(name, SET, "TRACE")])) == [(LOGGER, "1", 0)]
    assert logging.getLogger(name).level == loggers.TRACE
    _, levels = describe(node, LOGGER, "1", [name])
    assert (levels[name].value, levels[name].config_source) == ("TRACE", 6)
    assert change(node, (LOGGER, "1", [(name, DELETE, None)]), validate_only=True) == [(LOGGER, "1", 0)]
    assert logging.getLogger(name).level == loggers.TRACE
    both = [(name, SET, "ERROR"), ("not.there", SET, "ERROR")]
    assert change(node, (LOGGER, "1", list(both))) == [(LOGGER, "1", ErrorCode.INVALID_CONFIG)]
    assert logging.getLogger(name).level == loggers.TRACE, "all or none"
    assert change(node, (LOGGER, "1", [(name, DELETE, None)])) == [(LOGGER, "1", 0)]
    assert logging.getLogger(name).level == logging.NOTSET
    assert not node.image.configs, "levels are no matter of the cluster"


@pytest.mark.parametrize(
    ("version", "asked", "expected"),
    [
        (0, [], [(METRICS, "mine")]),
        (
            1,
            [],
            [(GROUP, "g"), (METRICS, "mine"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "a-topic"), (TOPIC, "b-topic")],
        ),
        (1, [TOPIC], [(TOPIC, "a-topic"), (TOPIC, "b-topic")]),
        (1, [GROUP, BROKER], [(GROUP, "g"), (BROKER, "1")]),
    ],
)
def test_resources_are_listed(node: NodeOfOne, version: int, asked: list[int], expected: list[tuple[int, str]]) -> None:
    change(
        node,
        (METRICS, "mine", [("interval.ms", SET, "1000")]),
        (GROUP, "g", [("share.delivery.count.limit", SET, "3")]),
    )
    request = ListConfigResourcesRequest(resource_types=asked)
    response = ask(k74_list_config_resources, node, request, version, ListConfigResourcesResponse)
    assert response.error_code == 0
    listed = [(each.resource_type, each.resource_name) for each in response.config_resources]
    assert listed == expected


@pytest.mark.parametrize("kind", [0, 99])
def test_resources_of_an_unknown_kind(node: NodeOfOne, kind: int) -> None:
    request = ListConfigResourcesRequest(resource_types=[TOPIC, kind])
    response = ask(k74_list_config_resources, node, request, 1, ListConfigResourcesResponse)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_an_answer_has_an_end(node: NodeOfOne, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k32_describe_configs, "ANSWER_BYTES_MAX", 100_000)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1") for _ in range(50)]
    )
    results = ask(k32_describe_configs, node, request, 4, DescribeConfigsResponse).results
    codes = [result.error_code for result in results]
    assert codes[0] == 0
    assert codes[-1] == ErrorCode.POLICY_VIOLATION
    assert codes == sorted(codes)
