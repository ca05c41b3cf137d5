"""The page Doctor: findings of the cluster with the commands that mend them."""

from __future__ import annotations

import pytest
from tests.console.asgi_browser import AsgiBrowser
from tests.console.made_topics import make_topic

from strandline.console.pages.doctor import commands_of
from strandline.local.embedded_broker import EmbeddedBroker


async def test_findings_are_told_with_their_commands(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "fragile", flush_mode="async")
    found = (await browser.get("/api/v1/clusters/dev/doctor")).json
    every = [each for section in found["sections"] for each in section["findings"]]
    assert {"quorum", "replicas", "topic", "rule-1"} <= {each["check"] for each in every}
    (fragile,) = [each for each in every if each["check"] == "topic" and "fragile" in each["text"]]
    assert fragile["level"] == "warning"
    assert any(each["commands"] for each in every)
    page = await browser.get("/c/dev/doctor")
    assert "could be safer" in page.words
    assert fragile["text"].split(":")[0] in page.words


async def test_a_level_is_chosen_in_the_url(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    found = (await browser.get("/api/v1/clusters/dev/doctor?level=note")).json
    levels = {each["level"] for section in found["sections"] for each in section["findings"]}
    assert levels == {"note"}
    assert (await browser.get("/c/dev/doctor?level=loud")).status == 400


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ("strandline cluster elect", ["cluster elect"]),
        ("look at it; strandline txn abort pay", ["txn abort pay"]),
        ("start that broker; if lost, `strandline cluster elect --unclean --topic NAME` takes another", None),
        ("`strandline queue why a b` and `strandline queue trace a b`", ["queue why a b", "queue trace a b"]),
        ("start node 3", []),
        ("strandline topic describe it's", []),
    ],
)
def test_commands_are_taken_from_advice(advice: str, expected: list[str] | None) -> None:
    found = [" ".join(each[1:-2]) for each in commands_of(advice, "host:9092")]
    assert found == (["cluster elect --unclean --topic NAME"] if expected is None else expected)
