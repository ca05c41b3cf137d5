"""Puts the questions of the REST table to a worker, and makes its answers comparable.

Ids, ports, versions, times and stack traces become words. Documentation becomes `DOC`: Kafka's sentences are not ours.
"""

from __future__ import annotations

import copy
import http.client
import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bench.kafka_jars import KAFKA_VERSION
from tests.connect.rest_calls import JSON, RestCall

import strandline

GOLDEN: Final = Path(__file__).parent / "golden" / "rest.json"
WAIT_S_MAX: Final = 30.0
_PAUSE_S: Final = 0.05
_WORDS: Final = {
    "kafka_cluster_id": "CLUSTER",
    "version": "VERSION",
    "commit": "COMMIT",
    "trace": "TRACE",
    "last_modified": "TIME",
    "worker_id": "WORKER",
    "documentation": "DOC",
}
_WHERE: Final = re.compile(r"127\.0\.0\.1:\d+")
_CLASSES: Final = re.compile(r"(available connectors are: ).*", re.DOTALL)
VERSIONS: Final = (KAFKA_VERSION, strandline.__version__)

Answer = dict[str, Any]


class NotReady(AssertionError):
    """A worker did not come to the state that the table waits for."""


def answers(url: str, calls: Iterable[RestCall], directory: Path, settle_s: float = 0.0) -> Iterator[Answer]:
    """Put questions in order; yield each with its answer. `settle_s` is how long a state must hold to be steady."""
    (directory / "in.txt").write_text("one\ntwo\nsix\n")
    (directory / "paused.txt").write_text("")
    for call in calls:
        yield answer(url, call, directory, settle_s)


def answer(url: str, call: RestCall, directory: Path, settle_s: float = 0.0) -> Answer:
    """Put one question, again until its answer is the one to record, and stays so if it has to be steady."""
    body = None if call.body is None else _text(call.body).replace("{dir}", str(directory))
    deadline = time.monotonic() + WAIT_S_MAX
    ready_at: float | None = None
    while True:
        status, content_type, allow, location, found = ask(url, call, body)
        # While a worker rebalances it answers 409 to everything that changes something.
        is_rebalancing = status == 409 and "stale" in str(found)
        if not is_rebalancing and (call.ready is None or call.ready(status, found)):
            ready_at = ready_at or time.monotonic()
            if not call.is_steady or time.monotonic() - ready_at >= settle_s:
                break
        else:
            ready_at = None
        if time.monotonic() > deadline:
            raise NotReady(f"{call.name}: {call.method} {call.path} answers {status} {found}")
        time.sleep(_PAUSE_S)
    asked: Answer = {"name": call.name, "method": call.method, "path": call.path}
    if call.body is not None:
        asked["body"] = call.body
    if call.headers:
        asked["headers"] = dict(call.headers)
    answered: Answer = {"status": status, "content_type": content_type}
    if allow:
        answered["allow"] = sorted(each.strip() for each in allow.split(","))
    if location:
        answered["location"] = urlsplit(location).path
    body_found = normal(found, directory)
    is_names = call.path.rstrip("/") == "/connectors" and isinstance(body_found, list)
    answered["body"] = sorted(body_found) if is_names else body_found
    return {"asked": asked, "answered": answered}


def ask(url: str, call: RestCall, body: str | None) -> tuple[int, str | None, str | None, str | None, Any]:
    """Send one request; return status, content type, Allow, Location and body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=100)
    headers = {"Accept": JSON, **({"Content-Type": JSON} if body is not None else {}), **call.headers}
    try:
        data = None if body is None else body.encode()
        connection.request(call.method, call.path, data, {name: each for name, each in headers.items() if each})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    content_type = response.getheader("content-type")
    try:
        found = json.loads(text) if text else None
    except ValueError:
        found = text
    return response.status, content_type, response.getheader("allow"), response.getheader("location"), found


def normal(value: Any, directory: Path) -> Any:
    """Return an answer without what differs from run to run."""
    if isinstance(value, dict):
        if "root" in value and all(_is_logger(each) for each in value.values()):
            # Each side has loggers of its own.
            value = {"root": value["root"]}
        return {name: _normal_field(name, each, directory) for name, each in value.items()}
    if isinstance(value, list):
        return [normal(each, directory) for each in value]
    if isinstance(value, str):
        if value in VERSIONS:
            return "VERSION"
        if value.startswith("<html>"):
            return "HTML"
        value = _CLASSES.sub(r"\1CLASSES", value)
        return _WHERE.sub("WORKER", value.replace(str(directory), "{dir}"))
    return value


def _normal_field(name: str, value: Any, directory: Path) -> Any:
    if name in _WORDS and value not in (None, ""):
        return _WORDS[name]
    if name == "recommended_values" and len(value) > 1:
        return ["CLASSES"]
    if name == "kafka_offset" and value not in (0, 1):
        # It counts control records, and what other connectors wrote meanwhile.
        return "OFFSET"
    return normal(value, directory)


def _is_logger(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"level", "last_modified"}


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


def stored() -> list[Answer]:
    """Return the recorded table."""
    found = json.loads(GOLDEN.read_text())
    settings = found["settings"]
    for each in found["answers"]:
        listed, key = _listed(each["answered"])
        if listed is not None:
            listed[key] = [settings[number] for number in listed[key]]
        if isinstance(each["answered"]["body"], dict) and "definitions" in each["answered"]["body"]:
            each["answered"]["body"] = each["answered"]["body"]["definitions"]
    answered: list[Answer] = found["answers"]
    return answered


def store(recorded: list[Answer]) -> None:
    """Write the table, one answer a line. A setting that many answers list is written once."""
    recorded = copy.deepcopy(recorded)
    numbers: dict[str, int] = {}
    for each in recorded:
        if _is_definitions(each["answered"]["body"]):
            each["answered"]["body"] = {"definitions": each["answered"]["body"]}
        listed, key = _listed(each["answered"])
        if listed is not None:
            texts = (json.dumps(setting, ensure_ascii=False) for setting in listed[key])
            listed[key] = [numbers.setdefault(text, len(numbers)) for text in texts]
    answers_text = ",\n".join(json.dumps(each, ensure_ascii=False) for each in recorded)
    settings_text = ",\n".join(numbers)
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(f'{{"settings": [\n{settings_text}\n],\n"answers": [\n{answers_text}\n]}}\n')


def _listed(answered: Answer) -> tuple[Any, str]:
    """Return where an answer has its list of settings, None if it has none."""
    body = answered["body"]
    key = next((each for each in ("configs", "definitions") if isinstance(body, dict) and each in body), "")
    return (body if key else None), key


def _is_definitions(body: Any) -> bool:
    return isinstance(body, list) and bool(body) and isinstance(body[0], dict) and "importance" in body[0]
