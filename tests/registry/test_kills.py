"""Registries are killed while clients register: no id is lost, given out twice or forked.

Clients write through two registries at once and try again when one dies. The checker folds the topic: what was answered
must be there, as it was answered.
"""

from __future__ import annotations

import json
import random
import threading
import uuid
from typing import Any

import pytest
from tests.registry.running_registry import RunningRegistry, start_registry
from tests.registry.test_topic import folded

CLIENTS = 4


class Pair:
    """Two registries on one topic; one that is killed is started again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._arguments = (bootstrap, "--topic", topic)
        self.running = [start_registry(*self._arguments) for _ in range(2)]

    def kill(self, which: int) -> None:
        old = self.running[which]
        old.kill()
        assert old.process.stdout is not None
        old.process.stdout.close()
        self.running[which] = start_registry(*self._arguments)

    def stop(self) -> None:
        for each in self.running:
            each.kill()
            assert each.process.stdout is not None
            each.process.stdout.close()


def schema(name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": []}


class Client(threading.Thread):
    """Registers schemas, each until it is answered; some that other clients register too."""

    def __init__(self, pair: Pair, number: int, seed: int, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._pair = pair
        self._number = number
        self._random = random.Random(seed + number)
        self._is_over = is_over
        self.answers: list[tuple[str, str, int, int]] = []
        """Subject, name of the schema, id and version."""
        self.failures: list[Any] = []

    def run(self) -> None:
        count = 0
        while not self._is_over.is_set():
            count += 1
            shared = self._random.random() < 0.5
            name = f"S{count % 30}" if shared else f"C{self._number}N{count}"
            subject = self._random.choice(["one", "two", f"own-{self._number}"])
            self._register(subject, name)

    def _register(self, subject: str, name: str) -> None:
        while not self._is_over.is_set():
            registry: RunningRegistry = self._random.choice(self._pair.running)
            try:
                status, answer = registry.register(subject, schema(name))
            except (OSError, ValueError):
                continue
            if status == 200:
                self.answers.append((subject, name, answer["id"], answer["version"]))
                return
            if status < 500:
                self.failures.append((status, answer))
                return


def run(bootstrap: str, kills: int, seed: int) -> int:
    """Kill registries while clients register, and check what came of it; return how many answers there were."""
    topic = f"_schemas-{uuid.uuid4().hex[:12]}"
    random_kill = random.Random(seed)
    pair = Pair(bootstrap, topic)
    is_over = threading.Event()
    clients = [Client(pair, number, seed, is_over) for number in range(CLIENTS)]
    try:
        assert pair.running[0].ask("PUT", "/config", {"compatibility": "NONE"})[0] == 200
        for client in clients:
            client.start()
        for _ in range(kills):
            before = sum(len(client.answers) for client in clients)
            # Wait until the two work again, so that each kill meets writes that are under way.
            while sum(len(client.answers) for client in clients) < before + 5:
                is_over.wait(0.01)
            pair.kill(random_kill.randrange(2))
        is_over.set()
        for client in clients:
            client.join(60)
        assert pair.running[0].ask("GET", "/subjects")[0] == 200
    finally:
        is_over.set()
        pair.stop()
    assert not [each for client in clients for each in client.failures]
    answers = [answer for client in clients for answer in client.answers]
    check(folded(bootstrap, topic), answers)
    return len(answers)


def check(state: Any, answers: list[tuple[str, str, int, int]]) -> None:
    ids: dict[int, str] = {}
    for versions in state.subjects.values():
        texts = [version.content.text for version in versions.values()]
        assert len(set(texts)) == len(texts), "a schema has two versions of a subject"
        assert sorted(versions) == list(range(1, len(versions) + 1)), "a version is missing"
        for version in versions.values():
            name = json.loads(version.content.text)["name"]
            assert ids.setdefault(version.id, name) == name, f"id {version.id} was given out twice"
    assert len(set(ids.values())) == len(ids), "a schema has two ids"
    for subject, name, schema_id, version in answers:
        found = state.version(subject, version)
        assert found is not None, f"{subject} version {version} was answered and is lost"
        assert (json.loads(found.content.text)["name"], found.id) == (name, schema_id)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_registries_lose_and_fork_nothing(registry_bootstrap: str, seed: int) -> None:
    assert run(registry_bootstrap, kills=6, seed=seed) > 30
