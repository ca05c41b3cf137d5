"""What is found in a connector's config before it is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.connect.rest_table import stored

from strandline.connect import Batch, InvalidConnectorConfig, Password, Sink, Source, option
from strandline.connect.config import Config as BaseConfig
from strandline.connect.herder.interface import RequestFailed
from strandline.connect.plugins import Plugins
from strandline.connect.validation.checks import check, options_of, validate
from strandline.connect.validation.common_options import COMMON_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS, name_error
from strandline.connect.validation.config_infos import definition_json
from strandline.connect.validation.typos import typos

MODULE = __name__
PLUGINS = Plugins([MODULE])


class Numbers(Source):
    """A source for these tests."""

    class Config(BaseConfig):
        """Its settings."""

        topic: str = option("Where to.")
        low: int = option("The first.", default=0)
        high: int = option("The last.", default=10, high=1000)
        api_key: Password | None = option("For the other side.", default=None, check=lambda key: _short(key))

        def check_all(self) -> Sequence[tuple[str, str]]:
            return [("low", "low is above high")] if self.low > self.high else []

    exactly_once = False

    def read(self, offsets: Any) -> Any:
        yield Batch([])


class Pit(Sink):
    """A sink for these tests."""


def _short(key: str) -> str | None:
    return None if len(key) < 9 else "it is too long"


def source(**more: str | None) -> dict[str, str | None]:
    return {"name": "n", "connector.class": f"{MODULE}:Numbers", "topic": "t", **more}


def sink(**more: str | None) -> dict[str, str | None]:
    return {"name": "n", "connector.class": f"{MODULE}:Pit", "topics": "t", **more}


def errors(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    found = validate(PLUGINS, config)
    return {name: each.errors for name, each in found.settings.items() if each.errors}


def test_good_configs_have_no_errors() -> None:
    assert errors(source()) == {}
    assert errors(sink()) == {}
    check(PLUGINS, source())


def test_common_settings_are_those_of_kafka_connect() -> None:
    recorded = {each["asked"]["name"]: each["answered"]["body"] for each in stored()}
    for plugin, options in (("source", SOURCE_OPTIONS), ("sink", SINK_OPTIONS)):
        theirs = {each["name"]: each for each in recorded[f"plugin config {plugin}"] if each["group"] is not None}
        ours = {each.name: definition_json(each) for each in (*COMMON_OPTIONS, *options)}
        assert list(ours) == list(theirs)
        for name, each in ours.items():
            kept = theirs[name] | {"documentation": each["documentation"]}
            if name != "connector.plugin.version":
                assert each == kept


def test_documentation_is_there_and_ends_in_a_period() -> None:
    for each in (*COMMON_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS):
        assert each.doc.endswith("."), each.name


def test_error_of_a_wrong_config_lists_everything() -> None:
    with pytest.raises(RequestFailed) as raised:
        check(PLUGINS, source(**{"high": "2000", "errors.tolerance": "some"}))
    assert raised.value.status == 400
    assert str(raised.value) == (
        "Connector configuration is invalid and contains the following 2 error(s):\n"
        "Invalid value some for configuration errors.tolerance: String must be one of: none, all\n"
        "Invalid value 2000 for configuration high: Value must be no more than 1000\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


def test_settings_are_checked_together() -> None:
    assert errors(source(low="9", high="3")) == {"low": ["low is above high"]}
    assert list(errors(source(low="nine", high="3"))) == ["low"]


@pytest.mark.parametrize(
    ("config", "status"),
    [({"name": "x"}, 400), ({"connector.class": "Nope"}, 400), ({"connector.class": "os:path"}, 400)],
)
def test_class_that_is_missing_or_not_allowed_is_a_bad_request(config: dict[str, str | None], status: int) -> None:
    with pytest.raises(RequestFailed) as raised:
        validate(PLUGINS, config)
    assert raised.value.status == status


def test_version_that_the_worker_does_not_have_is_an_error() -> None:
    assert list(errors(source(**{"connector.plugin.version": "0.0.0"}))) == ["connector.plugin.version"]
    assert errors(source(**{"connector.plugin.version": "[0.0,99.0)"})) == {}


def test_exactly_once_is_required_of_a_source_that_cannot() -> None:
    assert list(errors(source(**{"exactly.once.support": "Required"}))) == ["exactly.once.support"]
    assert errors(source(**{"exactly.once.support": "requested"})) == {}


# Typos


def test_name_that_is_close_to_a_known_one_is_an_error() -> None:
    given = source()
    given["tpoic"] = given.pop("topic")
    assert errors(given) == {
        "topic": ['Missing required configuration "topic" which has no default value.'],
        "tpoic": ["unknown setting tpoic: did you mean topic?"],
    }
    assert errors(sink(**{"task.max": "3"})) == {"task.max": ["unknown setting task.max: did you mean tasks.max?"]}


@pytest.mark.parametrize(
    "more",
    [
        {"something.else": "1"},
        {"topics": "t"},
        {"transforms.old.type": "Gone", "transforms.old.feild": "x"},
        {"producer.override.linger.mss": "5"},
        {"value.converter.schemas.enabel": "x"},
    ],
)
def test_other_unknown_settings_are_let_through(more: dict[str, str | None]) -> None:
    assert errors(source(**more)) == {}


def test_typo_in_a_part_of_the_connector_is_found() -> None:
    hoist = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "x"}
    assert errors(source(**hoist)) == {}
    assert list(errors(source(**hoist, **{"transforms.h.negat": "true"}))) == ["transforms.h.negat"]
    json_converter = {"value.converter": "JsonConverter", "value.converter.schema.enable": "false"}
    assert list(errors(source(**json_converter))) == ["value.converter.schema.enable"]


def test_names_that_differ_by_a_number_are_no_typos() -> None:
    assert list(typos({"address2": ""}, ["address1"], ())) == []
    assert list(typos({"adress1": ""}, ["address1"], ())) == [("adress1", "address1")]


# Parts


def test_predicate_that_is_not_listed_is_an_error() -> None:
    hoist = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "x"}
    assert list(errors(source(**hoist, **{"transforms.h.predicate": "p"}))) == ["transforms.h.predicate"]


def test_topic_creation_is_checked_with_its_groups() -> None:
    default = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"}
    assert errors(source(**default)) == {}
    assert list(errors(source(**{"topic.creation.default.partitions": "3"}))) == [
        "topic.creation.default.replication.factor"
    ]
    group = {"topic.creation.groups": "a", "topic.creation.a.include": "(", "topic.creation.a.partitions": "0"}
    assert list(errors(source(**default, **group))) == ["topic.creation.a.include", "topic.creation.a.partitions"]


# Secrets


def test_password_is_shown_nowhere() -> None:
    found = validate(PLUGINS, source(**{"api.key": "far-too-long-a-key"}))
    assert found.error_count == 1
    assert "far-too-long" not in json.dumps(found.json())


def test_reference_is_checked_by_its_value_and_shown_as_it_was_given() -> None:
    def resolve(config: Mapping[str, str]) -> dict[str, str]:
        return {name: value.replace("${env:N}", "many") for name, value in config.items()} | {"added": "x"}

    found = validate(PLUGINS, source(low="${env:N}"), resolve=resolve)
    assert found.settings["low"].errors == ["Invalid value ${env:N} for configuration low: Not a number of type INT"]
    assert "many" not in json.dumps(found.json())


def test_secret_that_cannot_be_read_is_a_bad_request() -> None:
    def resolve(config: Mapping[str, str]) -> dict[str, str]:
        raise InvalidConnectorConfig("low: the worker has no variable N")

    with pytest.raises(RequestFailed, match="no variable N"):
        check(PLUGINS, source(low="${env:N}"), resolve=resolve)


# Names


@pytest.mark.parametrize(
    ("name", "is_good"),
    [("a", True), ("a/b ö", True), ("", False), ("a\nb", False), ("a\x7fb", False), ("a\x85b", False)],
)
def test_names_have_no_control_characters(name: str, is_good: bool) -> None:
    assert (name_error(name) is None) == is_good


def test_own_settings_of_a_connector_come_first() -> None:
    names = list(options_of(PLUGINS.find(f"{MODULE}:Numbers")))
    assert names[:5] == ["topic", "low", "high", "api.key", "name"]
