"""Reading and changing settings of topics, brokers and groups over the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.conversation import converse, is_spoken
from strandline.cli.common.failures import CommandFailed, NotFound, topic_not_found
from strandline.cli.common.partition_places import BrokerAddress, brokers_of

_SET, _DELETE = 0, 1
_UNKNOWN_TOPIC = 3
_RESOURCE_TYPES = {"topic": 2, "broker": 4, "brokers": 4, "group": 32}
_OWN_SOURCES = {"topic": 1, "broker": 2, "brokers": 3, "group": 8}

# ConfigSource of the protocol, with the words for people.
SOURCES = {
    1: ("DYNAMIC_TOPIC_CONFIG", "topic"),
    2: ("DYNAMIC_BROKER_CONFIG", "broker"),
    3: ("DYNAMIC_DEFAULT_BROKER_CONFIG", "all brokers"),
    4: ("STATIC_BROKER_CONFIG", "static config"),
    5: ("DEFAULT_CONFIG", "default"),
    6: ("DYNAMIC_BROKER_LOGGER_CONFIG", "logger"),
    7: ("DYNAMIC_CLIENT_METRICS_CONFIG", "client metrics"),
    8: ("GROUP_CONFIG", "group"),
}


@dataclass(frozen=True)
class Target:
    """Whose settings: `topic`, `broker`, `brokers` (all together; no name) or `group`."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return "all brokers" if self.kind == "brokers" else f"{self.kind} {self.name}"

    def as_json(self) -> dict[str, str]:
        return {"resource": self.kind} | ({"resource_name": self.name} if self.name else {})


@dataclass(frozen=True)
class ConfigValue:
    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[tuple[str, str | None, int], ...] = ()
    """Every value that was given, by name and source; the first one is in force."""
    documentation: str = ""

    @property
    def source_name(self) -> str:
        return SOURCES.get(self.source, ("UNKNOWN_CONFIG", "unknown"))[0]

    @property
    def source_words(self) -> str:
        return SOURCES.get(self.source, ("UNKNOWN_CONFIG", "unknown"))[1]

    def fallback(self, target: Target) -> tuple[str, str | None] | None:
        """Return the name and the value that hold when `target` takes its own value back, where that is known."""
        rest = [(name, value) for name, value, source in self.synonyms if source != _OWN_SOURCES[target.kind]]
        return rest[0] if rest else None

    @property
    def is_set(self) -> bool:
        """Whether the value was set, here or in a file."""
        return self.source != 5


def value_of(entries: Mapping[str, ConfigValue], name: str) -> str | None:
    return entries[name].value if name in entries else None


def read_entries(cluster: Cluster, admin: Any, target: Target) -> dict[str, ConfigValue] | None:
    """Every setting by name; None when the cluster does not offer DescribeConfigs.

    The request is our own, because librdkafka folds synonyms of one name into one (a value set on
    the broker hides the default behind it) and does not ask for the documentation.
    """
    if target.kind == "broker":
        _check_broker(cluster, target)
    if is_spoken(cluster):
        return _read_plainly(cluster, admin, target)
    if target.kind == "brokers":
        raise _needs_own_request()
    kafka, resource = kafka_api(), _resource(target)
    with cluster.errors(f"cannot read the settings of {target}"):
        try:
            entries = admin.describe_configs([resource], request_timeout=cluster.timeout_s)[resource].result()
        except kafka.KafkaException as error:
            if error.args[0].name() in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                return None
            if error.args[0].name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                raise topic_not_found(target.name, known_topics(cluster, admin)) from error
            raise
    return {name: _entry(entry) for name, entry in sorted(entries.items())}


def write_entries(
    cluster: Cluster,
    admin: Any,
    target: Target,
    changed: Mapping[str, str],
    unset: Sequence[str],
    *,
    dry_run: bool = False,
) -> None:
    if target.kind == "brokers":
        _write_all_brokers(cluster, changed, unset, dry_run)
        return
    api, resource = admin_api(), _resource(target)
    for name, value in changed.items():
        operation = api.AlterConfigOpType.SET
        resource.add_incremental_config(api.ConfigEntry(name, value, incremental_operation=operation))
    for name in unset:
        operation = api.AlterConfigOpType.DELETE
        resource.add_incremental_config(api.ConfigEntry(name, None, incremental_operation=operation))
    with cluster.errors(f"cannot change {target}"):
        answers = admin.incremental_alter_configs([resource], validate_only=dry_run, request_timeout=cluster.timeout_s)
        answers[resource].result()


def known_topics(cluster: Cluster, admin: Any) -> list[str]:
    with cluster.errors("cannot list topics"):
        return list(admin.list_topics(timeout=cluster.timeout_s).topics)


def _resource(target: Target) -> Any:
    api = admin_api()
    kind = {"topic": api.ResourceType.TOPIC, "broker": api.ResourceType.BROKER, "group": api.ResourceType.GROUP}
    return api.ConfigResource(kind[target.kind], target.name)


def _entry(entry: Any) -> ConfigValue:
    # librdkafka's synonyms hang below the entry by name; the order of the protocol is kept by the dict.
    return ConfigValue(
        name=entry.name,
        value=entry.value,
        source=_number(entry.source),
        read_only=bool(entry.is_read_only),
        sensitive=bool(entry.is_sensitive),
        synonyms=tuple((s.name, s.value, _number(s.source)) for s in (entry.synonyms or {}).values()),
    )


def _number(source: Any) -> int:
    return int(getattr(source, "value", source))


def _check_broker(cluster: Cluster, target: Target) -> None:
    if not target.name.isdigit() or int(target.name) not in _brokers(cluster):
        raise NotFound(f"there is no broker {target.name}", hint="see `strandline cluster info`")


def _brokers(cluster: Cluster) -> dict[int, BrokerAddress]:
    return {each.id: each for each in brokers_of(cluster)}


def any_broker(cluster: Cluster) -> Target:
    return Target("broker", str(min(_brokers(cluster))))


def _needs_own_request() -> CommandFailed:
    # librdkafka insists on the number of one broker, so the nameless one is only reached by a request of our own.
    return CommandFailed(
        "settings of all brokers together cannot be reached with this sasl.mechanism",
        hint="name each broker with --broker ID",
    )


def _read_plainly(cluster: Cluster, admin: Any, target: Target) -> dict[str, ConfigValue] | None:
    from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
    from strandline.codec.messages.describe_configs_response import DescribeConfigsResponse

    resource = DescribeConfigsResource(_RESOURCE_TYPES[target.kind], target.name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    # A broker answers for itself only.
    broker = _brokers(cluster)[int(target.name)] if target.kind == "broker" else None
    conversation = converse(cluster, broker)
    assert conversation is not None, "our own connections reach it"
    with conversation:
        answer = conversation.ask(request, DescribeConfigsResponse)
    if answer is None:
        return None
    (result,) = answer.results
    if result.error_code == _UNKNOWN_TOPIC and target.kind == "topic":
        raise topic_not_found(target.name, known_topics(cluster, admin))
    _raise_refusal(result, f"cannot read the settings of {target}")
    return {
        config.name: ConfigValue(
            config.name,
            config.value,
            config.config_source,
            config.read_only,
            config.is_sensitive,
            tuple((synonym.name, synonym.value, synonym.source) for synonym in config.synonyms),
            config.documentation or "",
        )
        for config in sorted(result.configs, key=lambda config: str(config.name))
    }


def _write_all_brokers(cluster: Cluster, changed: Mapping[str, str], unset: Sequence[str], dry_run: bool) -> None:
    from strandline.codec.messages import incremental_alter_configs_request as request_of
    from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

    configs = [request_of.AlterableConfig(name, _SET, value) for name, value in changed.items()]
    configs += [request_of.AlterableConfig(name, _DELETE, None) for name in unset]
    resource = request_of.AlterConfigsResource(_RESOURCE_TYPES["brokers"], resource_name="", configs=configs)
    request = request_of.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
    conversation = converse(cluster)
    if conversation is None:
        raise _needs_own_request()
    with conversation:
        answer = conversation.ask(request, IncrementalAlterConfigsResponse)
    if answer is None:
        raise CommandFailed("this cluster does not offer IncrementalAlterConfigs")
    (result,) = answer.responses
    _raise_refusal(result, "cannot change all brokers")


def _raise_refusal(result: Any, doing: str) -> None:
    if result.error_code:
        reason = result.error_message or kafka_api().KafkaError(result.error_code).str()
        raise CommandFailed(f"{doing}: {reason}", hint="`strandline config explain NAME` says what a setting may be")
