"""The pages of `docs/connectors` tell the truth: their snippets are valid, and run where they need no server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from tests.connect.running import RunningWorker, wait_until

import strandline
from strandline.cli.connect.connector_files import read_connector_file
from strandline.connect.herder.worker_settings import WorkerSettings
from strandline.connect.plugins import Plugins
from strandline.connect.sinks.search import search
from strandline.connect.sources.generated_fields import fields_of
from strandline.connect.validation.checks import options_of, validate
from strandline.local.free_ports import free_port

PAGES = sorted((Path(__file__).parents[2] / "docs" / "connectors").glob("*.md"))
CLASS = "connector.class"
SECRET = re.compile(r"\$\{(?:file|env):[^}]*\}")
FREE = ("catalog.", "storage.", "store.option.", "http.header.")
"""Settings of libraries and headers, which have names of their own."""
RUN = ("FileSource", "FileSink", "GeneratorSource", "SearchSink", "WebhookSource", "OtlpSource", "SyslogSource")


def blocks(page: Path) -> list[str]:
    return [text for _, text in re.findall(r"^```(json|ya?ml)\n(.*?)^```$", page.read_text(), re.M | re.S)]


SNIPPETS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(blocks(page))
    if CLASS in text
]


def configs_of(text: str, directory: Path) -> dict[str, dict[str, str]]:
    """Return the connectors of a snippet, read as a file of them is."""
    is_json = text.lstrip().startswith("{")
    file = directory / ("snippet.json" if is_json else "snippet.yaml")
    file.write_text(text)
    return read_connector_file(file).connectors


def test_every_page_has_a_connector() -> None:
    assert PAGES
    assert [page.name for page in PAGES if not any(CLASS in text for text in blocks(page))] == []


def test_other_snippets_can_be_parsed() -> None:
    for page in PAGES:
        for text in blocks(page):
            assert isinstance(yaml.safe_load(text), Mapping), page


def test_fields_of_the_generator_are_those_that_it_makes() -> None:
    (page,) = [each for each in PAGES if each.stem == "generator"]
    (text,) = [each for each in blocks(page) if CLASS not in each]
    assert [each.name for each in fields_of(json.loads(text))] == list(json.loads(text))


@pytest.mark.parametrize("text", SNIPPETS)
def test_snippet_is_valid(text: str, tmp_path: Path) -> None:
    plugins = Plugins(())
    for config in configs_of(text, tmp_path).values():
        found = validate(
            plugins,
            config,
            defaults=WorkerSettings({}).of_connectors(),
            resolve=lambda given: {name: SECRET.sub("resolved", value) for name, value in given.items()},
        )
        assert {each.name: each.errors for each in found.settings.values() if each.errors} == {}
        known = options_of(plugins.find(config[CLASS]))
        assert [name for name in config if name not in known and not name.startswith(FREE)] == []


def test_snippet_with_a_wrong_setting_would_fail(tmp_path: Path) -> None:
    text = SNIPPETS[0].values[0].replace('"topics"', '"topic"')
    with pytest.raises(AssertionError):
        test_snippet_is_valid(text, tmp_path)


def here(config: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return a config with addresses and paths of this test."""
    found = {name: SECRET.sub("resolved", value) for name, value in config.items()}
    for name in ("listen", "udp.listen", "tcp.listen"):
        if name in found:
            found[name] = f"127.0.0.1:{free_port()}"
    if "index.path" in found:
        found["index.path"] = str(directory / "index")
    return found


@pytest.mark.lengthy("starts a broker and a worker, and runs connectors")
def test_snippets_that_need_no_server_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    Path("logs/a.log").write_text("one\ntwo\n")
    Path("out").mkdir()
    every = [config for each in SNIPPETS for config in configs_of(str(each.values[0]), tmp_path).values()]
    chosen = {config[CLASS]: here(config, tmp_path) for config in every if config[CLASS] in RUN}
    assert set(chosen) == set(RUN)
    with strandline.embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as log:
        for topic in ("orders", "books", "logs"):
            log.create_topic(topic, 1)
        with RunningWorker(log.bootstrap) as worker:
            worker.lead()
            for name, config in chosen.items():
                worker.create(name, name, config | {"name": name})
            for name in chosen:
                worker.wait_for(name, "RUNNING")
            book = {"title": "the old bridge", "body": "a river", "price": 7}
            send(log.bootstrap, "books", "b1", book)
            wait_until(lambda: Path("out/orders-0.txt").is_file() and lines("out/orders-0.txt") > 10, "orders flow")
            wait_until(lambda: (tmp_path / "index" / "meta.json").exists(), "the index is made")
            wait_until(lambda: bool(worker.ask(worker.herder.offsets("FileSource"))), "lines are read")
            asked = 'title:"old bridge" AND attributes.price:[5 TO 9]'
            wait_until(lambda: [hit.value for hit in search("index", asked)] == [book], "the book is found")
            assert [worker.wait_for(name, "RUNNING") for name in chosen] == [""] * len(chosen)


def lines(path: str) -> int:
    return len(Path(path).read_text().splitlines())


def send(bootstrap: str, topic: str, key: str, value: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, key=json.dumps(key), value=json.dumps(value))
    assert producer.flush(30) == 0
