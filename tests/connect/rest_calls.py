"""The questions of the recorded REST table, in order. Each may wait until its answer is what the next one builds on.

`{dir}` in a body stands for the directory with the files of the connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

SOURCE_CLASS: Final = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK_CLASS: Final = "org.apache.kafka.connect.file.FileStreamSinkConnector"
SOURCE: Final = {
    "connector.class": SOURCE_CLASS,
    "tasks.max": "1",
    "file": "{dir}/in.txt",
    "topic": "lines",
}
SINK: Final = {
    "connector.class": SINK_CLASS,
    "tasks.max": "2",
    "file": "{dir}/out.txt",
    "topics": "lines",
}
JSON: Final = "application/json"

Ready = Callable[[int, Any], bool]


@dataclass(frozen=True)
class RestCall:
    """One question. A `body` that is a text is sent as it is."""

    name: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ready: Ready | None = None
    """Whether the answer is the one to record; else it is asked again."""
    is_steady: bool = False
    """Whether it has to stay so for a while, because what follows depends on it."""


def _states(connector: str, *tasks: str, code: int = 200) -> Ready:
    """Return a test of a status: the states of the connector and of its tasks."""

    def ready(status: int, answer: Any) -> bool:
        if status != code or "connector" not in answer:
            return False
        return answer["connector"]["state"] == connector and [each["state"] for each in answer["tasks"]] == list(tasks)

    return ready


def _all_run(status: int, answer: Any) -> bool:
    units = [answer["connector"], *answer["tasks"]] if status == 200 else []
    return len(units) > 1 and all(each["state"] == "RUNNING" for each in units)


def _is_paused(status: int, answer: Any) -> bool:
    return status == 200 and all(each["state"] == "PAUSED" for each in (answer["connector"], *answer["tasks"]))


def _is(status_wanted: int) -> Ready:
    return lambda status, answer: status == status_wanted


def _lists(name: str, status: int, answer: Any) -> bool:
    return name in answer


def _has_offsets(position: str, value: int) -> Ready:
    def ready(status: int, answer: Any) -> bool:
        return status == 200 and any((each["offset"] or {}).get(position) == value for each in answer["offsets"])

    return ready


def calls() -> Iterator[RestCall]:
    """Yield every question, in order."""
    yield from _worker()
    yield from _create()
    yield from _read()
    yield from _config()
    yield from _restart()
    yield from _states_and_offsets()
    yield from _sink()
    yield from _plugins()
    yield from _validate()
    yield from _loggers()
    yield from _odd_names()
    yield from _http()
    yield from _delete()


def _worker() -> Iterator[RestCall]:
    yield RestCall("root", "GET", "/")
    yield RestCall("health", "GET", "/health")
    yield RestCall("no connectors", "GET", "/connectors")
    yield RestCall("no connectors expanded", "GET", "/connectors?expand=status")


def _create() -> Iterator[RestCall]:
    path = "/connectors"
    yield RestCall("create", "POST", path, {"name": "src", "config": SOURCE})
    yield RestCall("created runs", "GET", "/connectors/src/status", ready=_states("RUNNING", "RUNNING"))
    yield RestCall("create again", "POST", path, {"name": "src", "config": SOURCE})
    yield RestCall("create without config", "POST", path, {"name": "none"})
    yield RestCall("create with null config", "POST", path, {"name": "none", "config": None})
    yield RestCall("create with empty config", "POST", path, {"name": "none", "config": {}})
    yield RestCall("create without name", "POST", path, {"config": SOURCE})
    yield RestCall("create with empty name", "POST", path, {"name": "", "config": SOURCE})
    yield RestCall("create with a control character", "POST", path, {"name": "a\u0001b", "config": SOURCE})
    yield RestCall("create bad JSON", "POST", path, "{not json")
    yield RestCall("create cut JSON", "POST", path, '{"name": "x"')
    yield RestCall("create empty body", "POST", path, "")
    yield RestCall("create a list", "POST", path, [])
    yield RestCall("create null", "POST", path, "null")
    yield RestCall("create config a list", "POST", path, {"name": "x", "config": []})
    yield RestCall("create unknown field", "POST", path, {"name": "x", "config": SOURCE, "colour": "red"})
    yield RestCall("create unknown class", "POST", path, {"name": "x", "config": {**SOURCE, "connector.class": "Nope"}})
    yield RestCall("create name differs", "POST", path, {"name": "x", "config": {**SOURCE, "name": "y"}})
    yield RestCall("create tasks.max text", "POST", path, {"name": "x", "config": {**SOURCE, "tasks.max": "many"}})
    yield RestCall("create tasks.max zero", "POST", path, {"name": "x", "config": {**SOURCE, "tasks.max": "0"}})
    bad = {**SOURCE, "tasks.max": "-1", "errors.tolerance": "some", "errors.log.enable": "maybe"}
    yield RestCall("create several errors", "POST", path, {"name": "x", "config": bad})
    yield RestCall("create null setting", "POST", path, {"name": "x", "config": {**SOURCE, "errors.tolerance": None}})
    yield RestCall(
        "create missing topic", "POST", path, {"name": "x", "config": {"connector.class": SOURCE_CLASS, "file": "x"}}
    )
    yield RestCall("create sink without topics", "POST", path, {"name": "x", "config": {"connector.class": SINK_CLASS}})
    yield RestCall("create bad state", "POST", path, {"name": "x", "config": SOURCE, "initial_state": "SLEEPING"})
    yield RestCall("create state null", "POST", path, {"name": "null-state", "config": SOURCE, "initial_state": None})
    yield RestCall("delete state null", "DELETE", "/connectors/null-state", ready=_is(204))
    stopped = {"name": "halted", "config": {**SOURCE, "topic": "halted"}, "initial_state": "STOPPED"}
    yield RestCall("create stopped", "POST", path, stopped)
    yield RestCall("created is stopped", "GET", "/connectors/halted/status", ready=_states("STOPPED"))
    numbers = {"connector.class": "FileStreamSource", "tasks.max": 1, "file": "{dir}/paused.txt", "topic": "paused"}
    paused = {"name": "paused", "config": numbers, "initial_state": "paused"}
    yield RestCall("create paused with a number", "POST", path, paused)
    yield RestCall("created is paused", "GET", "/connectors/paused/status", ready=_is_paused)


def _read() -> Iterator[RestCall]:
    yield RestCall("list", "GET", "/connectors")
    yield RestCall("list expand both", "GET", "/connectors?expand=status&expand=info")
    yield RestCall("list expand info", "GET", "/connectors?expand=info")
    yield RestCall("list expand unknown", "GET", "/connectors?expand=nonsense")
    yield RestCall("list trailing slash", "GET", "/connectors/")
    yield RestCall("get", "GET", "/connectors/src")
    yield RestCall("get unknown", "GET", "/connectors/nope")
    yield RestCall("config", "GET", "/connectors/src/config")
    yield RestCall("config unknown", "GET", "/connectors/nope/config")
    yield RestCall("status unknown", "GET", "/connectors/nope/status")
    yield RestCall("tasks", "GET", "/connectors/src/tasks")
    yield RestCall("tasks unknown", "GET", "/connectors/nope/tasks")
    yield RestCall("task status", "GET", "/connectors/src/tasks/0/status")
    yield RestCall("task status unknown task", "GET", "/connectors/src/tasks/7/status")
    yield RestCall("task status unknown connector", "GET", "/connectors/nope/tasks/0/status")
    yield RestCall("task status text", "GET", "/connectors/src/tasks/x/status")
    yield RestCall("tasks-config", "GET", "/connectors/src/tasks-config")
    yield RestCall("topics", "GET", "/connectors/src/topics", ready=lambda _, answer: "lines" in str(answer))
    yield RestCall("topics unknown", "GET", "/connectors/nope/topics")
    yield RestCall("topics reset", "PUT", "/connectors/src/topics/reset")
    yield RestCall("topics after reset", "GET", "/connectors/src/topics", ready=lambda _, a: "lines" not in str(a))
    yield RestCall("topics reset unknown", "PUT", "/connectors/nope/topics/reset")


def _config() -> Iterator[RestCall]:
    path = "/connectors/src/config"
    yield RestCall("put config", "PUT", path, {**SOURCE, "batch.size": "100"})
    yield RestCall("put config runs", "GET", "/connectors/src/status", ready=_states("RUNNING", "RUNNING"))
    yield RestCall("put config read", "GET", path, ready=lambda _, answer: answer.get("batch.size") == "100")
    yield RestCall("put config name differs", "PUT", path, {**SOURCE, "name": "other"})
    yield RestCall("put config bad", "PUT", path, {**SOURCE, "tasks.max": "x"})
    yield RestCall("put config empty", "PUT", path, {})
    yield RestCall("put config no body", "PUT", path, "")
    yield RestCall("put config bad JSON", "PUT", path, "[1,")
    yield RestCall("put config nested", "PUT", path, {**SOURCE, "x": {"y": 1}})
    yield RestCall("put config creates", "PUT", "/connectors/put/config", {**SOURCE, "topic": "put"})
    yield RestCall("put created runs", "GET", "/connectors/put/status", ready=_states("RUNNING", "RUNNING"))
    yield RestCall("patch config", "PATCH", path, {"batch.size": "200", "errors.tolerance": "all"})
    yield RestCall("patched", "GET", path, ready=lambda _, answer: answer.get("batch.size") == "200")
    yield RestCall("patch config removes", "PATCH", path, {"errors.tolerance": None})
    yield RestCall("patch removed", "GET", path, ready=lambda _, answer: "errors.tolerance" not in answer)
    yield RestCall("patch config bad", "PATCH", path, {"tasks.max": "x"})
    yield RestCall("patch config unknown", "PATCH", "/connectors/nope/config", {"batch.size": "1"})
    yield RestCall("patch config no body", "PATCH", path, "")
    yield RestCall("patch name", "PATCH", path, {"name": "other"})


def _restart() -> Iterator[RestCall]:
    runs = _states("RUNNING", "RUNNING")
    path = "/connectors/src/restart"
    yield RestCall("before restart", "GET", "/connectors/src/status", ready=runs, is_steady=True)
    yield RestCall("restart", "POST", path)
    yield RestCall("after restart", "GET", "/connectors/src/status", ready=runs, is_steady=True)
    # A busy worker may begin an earlier restart late.
    over = _states("RUNNING", "RUNNING", code=202)
    yield RestCall("restart failed", "POST", f"{path}?includeTasks=true&onlyFailed=true", ready=over)
    yield RestCall("restart failed connector", "POST", f"{path}?onlyFailed=true", ready=over)
    yield RestCall("restart with tasks", "POST", f"{path}?includeTasks=true&onlyFailed=false")
    yield RestCall("after restart with tasks", "GET", "/connectors/src/status", ready=runs, is_steady=True)
    yield RestCall("restart odd flag", "POST", f"{path}?includeTasks=perhaps")
    yield RestCall("after odd restart", "GET", "/connectors/src/status", ready=runs, is_steady=True)
    yield RestCall("restart unknown", "POST", "/connectors/nope/restart")
    yield RestCall("restart unknown with tasks", "POST", "/connectors/nope/restart?includeTasks=true")
    yield RestCall("restart task", "POST", "/connectors/src/tasks/0/restart")
    yield RestCall("after restart of task", "GET", "/connectors/src/status", ready=runs, is_steady=True)
    yield RestCall("restart unknown task", "POST", "/connectors/src/tasks/9/restart")
    yield RestCall("restart task of unknown", "POST", "/connectors/nope/tasks/0/restart")


def _states_and_offsets() -> Iterator[RestCall]:
    path = "/connectors/src"
    here = {"partition": {"filename": "{dir}/in.txt"}, "offset": {"position": 4}}
    yield RestCall("pause", "PUT", f"{path}/pause")
    yield RestCall("paused", "GET", f"{path}/status", ready=_states("PAUSED", "PAUSED"))
    yield RestCall("pause again", "PUT", f"{path}/pause")
    yield RestCall("pause unknown", "PUT", "/connectors/nope/pause")
    yield RestCall("resume", "PUT", f"{path}/resume")
    yield RestCall("resumed", "GET", f"{path}/status", ready=_states("RUNNING", "RUNNING"))
    yield RestCall("resume unknown", "PUT", "/connectors/nope/resume")
    yield RestCall("source offsets", "GET", f"{path}/offsets", ready=_has_offsets("position", 12))
    yield RestCall("offsets unknown", "GET", "/connectors/nope/offsets")
    yield RestCall("alter offsets running", "PATCH", f"{path}/offsets", {"offsets": [here]})
    yield RestCall("reset offsets running", "DELETE", f"{path}/offsets")
    yield RestCall("stop", "PUT", f"{path}/stop")
    yield RestCall("stopped", "GET", f"{path}/status", ready=_states("STOPPED"))
    yield RestCall("tasks of stopped", "GET", f"{path}/tasks", ready=lambda _, answer: answer == [])
    yield RestCall("stop again", "PUT", f"{path}/stop")
    yield RestCall("stop unknown", "PUT", "/connectors/nope/stop")
    yield RestCall("restart stopped", "POST", f"{path}/restart")
    yield RestCall("alter offsets", "PATCH", f"{path}/offsets", {"offsets": [here]})
    yield RestCall("altered offsets", "GET", f"{path}/offsets", ready=_has_offsets("position", 4))
    yield RestCall("alter offsets empty", "PATCH", f"{path}/offsets", {"offsets": []})
    yield RestCall("alter offsets without list", "PATCH", f"{path}/offsets", {})
    yield RestCall("alter offsets no body", "PATCH", f"{path}/offsets", "")
    yield RestCall("alter offsets bad JSON", "PATCH", f"{path}/offsets", "{")
    yield RestCall("alter offsets a text", "PATCH", f"{path}/offsets", {"offsets": "all"})
    yield RestCall(
        "alter offsets of the wrong kind",
        "PATCH",
        f"{path}/offsets",
        {"offsets": [{"partition": {"filename": "{dir}/in.txt"}, "offset": {"position": "four"}}]},
    )
    yield RestCall(
        "alter offsets without partition", "PATCH", f"{path}/offsets", {"offsets": [{"offset": {"position": 1}}]}
    )
    yield RestCall("alter offsets unknown", "PATCH", "/connectors/nope/offsets", {"offsets": [here]})
    yield RestCall("reset offsets", "DELETE", f"{path}/offsets")
    yield RestCall("offsets after reset", "GET", f"{path}/offsets", ready=lambda _, a: a == {"offsets": []})
    yield RestCall("reset offsets again", "DELETE", f"{path}/offsets")
    yield RestCall("reset offsets unknown", "DELETE", "/connectors/nope/offsets")
    yield RestCall("resume from stopped", "PUT", f"{path}/resume")
    yield RestCall("resumed from stopped", "GET", f"{path}/status", ready=_states("RUNNING", "RUNNING"))


def _sink() -> Iterator[RestCall]:
    path = "/connectors/snk"
    place = {"kafka_topic": "lines", "kafka_partition": 0}
    yield RestCall("create sink", "POST", "/connectors", {"name": "snk", "config": SINK})
    yield RestCall("sink runs", "GET", f"{path}/status", ready=_all_run)
    yield RestCall("sink", "GET", path)
    yield RestCall("sink tasks", "GET", f"{path}/tasks")
    yield RestCall(
        "sink offsets",
        "GET",
        f"{path}/offsets",
        ready=lambda status, answer: status == 200 and bool(answer["offsets"]),
    )
    yield RestCall("sink topics", "GET", f"{path}/topics", ready=lambda _, answer: "lines" in str(answer))
    yield RestCall("stop sink", "PUT", f"{path}/stop")
    yield RestCall("sink stopped", "GET", f"{path}/status", ready=_states("STOPPED"))
    positions = {"offsets": [{"partition": place, "offset": {"kafka_offset": 1}}]}
    yield RestCall("alter sink offsets", "PATCH", f"{path}/offsets", positions, ready=_is(200))
    yield RestCall("altered sink offsets", "GET", f"{path}/offsets", ready=_has_offsets("kafka_offset", 1))
    for name, partition, offset in (
        ("without topic", {"kafka_partition": 0}, {"kafka_offset": 1}),
        ("without partition", {"kafka_topic": "lines"}, {"kafka_offset": 1}),
        ("partition a text", {"kafka_topic": "lines", "kafka_partition": "x"}, {"kafka_offset": 1}),
        ("offset a text", place, {"kafka_offset": "x"}),
        ("offset missing", place, {}),
        ("offset negative", place, {"kafka_offset": -5}),
        ("unknown topic", {"kafka_topic": "no-such-topic", "kafka_partition": 0}, {"kafka_offset": 1}),
    ):
        body = {"offsets": [{"partition": partition, "offset": offset}]}
        yield RestCall(f"alter sink offsets {name}", "PATCH", f"{path}/offsets", body)
    yield RestCall(
        "alter sink offsets to null", "PATCH", f"{path}/offsets", {"offsets": [{"partition": place, "offset": None}]}
    )
    yield RestCall("reset sink offsets", "DELETE", f"{path}/offsets")
    yield RestCall("sink offsets after reset", "GET", f"{path}/offsets", ready=lambda _, a: a == {"offsets": []})


def _plugins() -> Iterator[RestCall]:
    path = "/connector-plugins"
    yield RestCall("plugins", "GET", path)
    yield RestCall("plugins all", "GET", f"{path}?connectorsOnly=false")
    yield RestCall("plugins connectors", "GET", f"{path}?connectorsOnly=true")
    yield RestCall("plugin config source", "GET", f"{path}/FileStreamSource/config")
    yield RestCall("plugin config sink", "GET", f"{path}/{SINK_CLASS}/config")
    yield RestCall("plugin config converter", "GET", f"{path}/org.apache.kafka.connect.json.JsonConverter/config")
    yield RestCall(
        "plugin config transform", "GET", f"{path}/org.apache.kafka.connect.transforms.InsertField$Value/config"
    )
    yield RestCall("plugin config unknown", "GET", f"{path}/Nope/config")
    yield RestCall("plugin alone", "GET", f"{path}/FileStreamSource")


def _validate() -> Iterator[RestCall]:
    source, sink = (f"/connector-plugins/FileStream{each}/config/validate" for each in ("Source", "Sink"))
    ok = {**SOURCE, "name": "v"}
    yield RestCall("validate good source", "PUT", source, ok)
    yield RestCall("validate good sink", "PUT", sink, {**SINK, "name": "v"})
    yield RestCall("validate by class", "PUT", f"/connector-plugins/{SOURCE_CLASS}/config/validate", ok)
    yield RestCall("validate only the class", "PUT", source, {"connector.class": SOURCE_CLASS})
    yield RestCall("validate without class", "PUT", source, {"name": "v", "topic": "t"})
    yield RestCall("validate empty", "PUT", source, {})
    yield RestCall("validate no body", "PUT", source, "")
    yield RestCall("validate bad JSON", "PUT", source, "{")
    yield RestCall("validate other class", "PUT", source, {**SINK, "name": "v"})
    yield RestCall(
        "validate unknown class", "PUT", "/connector-plugins/Nope/config/validate", {"connector.class": "Nope"}
    )
    yield RestCall("validate tasks.max", "PUT", source, {**ok, "tasks.max": "x"})
    yield RestCall("validate empty name", "PUT", source, {**ok, "name": ""})
    yield RestCall("validate unknown setting", "PUT", source, {**ok, "something.else": "1"})
    yield RestCall(
        "validate bad choice", "PUT", source, {**ok, "errors.tolerance": "some", "config.action.reload": "x"}
    )
    yield RestCall("validate null setting", "PUT", source, {**ok, "errors.tolerance": None, "other": None})
    yield RestCall("validate both topics", "PUT", sink, {**SINK, "name": "v", "topics.regex": "a.*"})
    yield RestCall("validate bad regex", "PUT", sink, {"connector.class": SINK_CLASS, "name": "v", "topics.regex": "("})
    dead = {"errors.deadletterqueue.topic.name": "lines"}
    yield RestCall("validate dead letters in topics", "PUT", sink, {**SINK, "name": "v", **dead})
    by_regex = {"connector.class": SINK_CLASS, "name": "v", "topics.regex": "l.*"}
    yield RestCall("validate dead letters in regex", "PUT", sink, {**by_regex, **dead})
    json = "org.apache.kafka.connect.json.JsonConverter"
    yield RestCall(
        "validate converter",
        "PUT",
        source,
        {**ok, "value.converter": json, "value.converter.schemas.enable": "false"},
    )
    yield RestCall(
        "validate converter setting bad",
        "PUT",
        source,
        {**ok, "value.converter": json, "value.converter.schemas.enable": "x"},
    )
    yield RestCall("validate converter unknown", "PUT", source, {**ok, "key.converter": "nope"})
    yield RestCall(
        "validate header converter",
        "PUT",
        source,
        {**ok, "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"},
    )
    hoist = {"transforms": "h", "transforms.h.type": "org.apache.kafka.connect.transforms.HoistField$Value"}
    yield RestCall("validate transform", "PUT", source, {**ok, **hoist, "transforms.h.field": "line"})
    yield RestCall("validate transform setting missing", "PUT", source, {**ok, **hoist})
    yield RestCall("validate transform type missing", "PUT", source, {**ok, "transforms": "h"})
    yield RestCall("validate transform unknown", "PUT", source, {**ok, "transforms": "h", "transforms.h.type": "Nope"})
    yield RestCall("validate transform twice", "PUT", source, {**ok, **hoist, "transforms": "h,h"})
    has_header = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
    predicate = {"predicates": "p", "predicates.p.type": has_header}
    with_predicate = {**ok, **hoist, "transforms.h.field": "line", "transforms.h.predicate": "p", **predicate}
    yield RestCall("validate predicate", "PUT", source, {**with_predicate, "predicates.p.name": "x"})
    yield RestCall("validate predicate setting missing", "PUT", source, with_predicate)
    yield RestCall(
        "validate negate without predicate",
        "PUT",
        source,
        {**ok, **hoist, "transforms.h.field": "x", "transforms.h.negate": "true"},
    )
    yield RestCall(
        "validate topic creation",
        "PUT",
        source,
        {**ok, "topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"},
    )
    yield RestCall(
        "validate topic creation groups",
        "PUT",
        source,
        {
            **ok,
            "topic.creation.groups": "a",
            "topic.creation.default.partitions": "3",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.a.include": "x.*",
        },
    )
    yield RestCall("validate exactly once", "PUT", source, {**ok, "exactly.once.support": "required"})
    yield RestCall("validate exactly once odd", "PUT", source, {**ok, "exactly.once.support": "Always"})
    yield RestCall("validate boundary", "PUT", source, {**ok, "transaction.boundary": "connector"})
    yield RestCall("validate boundary interval", "PUT", source, {**ok, "transaction.boundary.interval.ms": "-1"})
    yield RestCall("validate offsets topic empty", "PUT", source, {**ok, "offsets.storage.topic": ""})
    yield RestCall("validate client overrides", "PUT", source, {**ok, "producer.override.linger.ms": "5"})


def _loggers() -> Iterator[RestCall]:
    path = "/admin/loggers"
    yield RestCall("loggers", "GET", path)
    yield RestCall("logger root", "GET", f"{path}/root")
    yield RestCall("logger unknown", "GET", f"{path}/no.such.logger")
    yield RestCall("set logger", "PUT", f"{path}/org.example", {"level": "DEBUG"})
    yield RestCall("set logger read", "GET", f"{path}/org.example")
    yield RestCall("set logger lower case", "PUT", f"{path}/org.example", {"level": "warn"})
    yield RestCall("set logger worker scope", "PUT", f"{path}/org.example?scope=worker", {"level": "INFO"})
    yield RestCall("set logger cluster scope", "PUT", f"{path}/org.example?scope=cluster", {"level": "ERROR"})
    yield RestCall("set logger odd scope", "PUT", f"{path}/org.example?scope=galaxy", {"level": "INFO"})
    yield RestCall("set logger bad level", "PUT", f"{path}/org.example", {"level": "LOUD"})
    yield RestCall("set logger no level", "PUT", f"{path}/org.example", {})
    yield RestCall("set logger no body", "PUT", f"{path}/org.example", "")
    yield RestCall("set logger bad JSON", "PUT", f"{path}/org.example", "{")
    yield RestCall("delete logger", "DELETE", f"{path}/org.example")


def _odd_names() -> Iterator[RestCall]:
    for name, raw in (("a b", "a%20b"), ("größe", "gr%C3%B6%C3%9Fe"), ("plus+", "plus+")):
        body = {"name": name, "config": {**SOURCE, "topic": "odd"}, "initial_state": "STOPPED"}
        yield RestCall(f"create {name}", "POST", "/connectors", body)
        yield RestCall(f"get {name}", "GET", f"/connectors/{raw}", ready=_is(200))
        yield RestCall(f"status {name}", "GET", f"/connectors/{raw}/status", ready=_is(200))
        yield RestCall(f"delete {name}", "DELETE", f"/connectors/{raw}")
    body = {"name": "  spaces  ", "config": {**SOURCE, "topic": "odd"}, "initial_state": "STOPPED"}
    yield RestCall("create name with spaces around", "POST", "/connectors", body)
    yield RestCall("get name with spaces around", "GET", "/connectors/spaces", ready=_is(200))
    yield RestCall("delete name with spaces around", "DELETE", "/connectors/spaces")
    for name, raw in (("a/b", "a%2Fb"), ("per%cent", "per%25cent")):
        body = {"name": name, "config": {**SOURCE, "topic": "odd"}, "initial_state": "STOPPED"}
        yield RestCall(f"create {name}", "POST", "/connectors", body)
        yield RestCall(f"list with {name}", "GET", "/connectors", ready=partial(_lists, name))
        yield RestCall(f"get {name}", "GET", f"/connectors/{raw}")
        yield RestCall(f"stop {name}", "PUT", f"/connectors/{raw}/stop")
        yield RestCall(f"delete {name}", "DELETE", f"/connectors/{raw}")


def _http() -> Iterator[RestCall]:
    yield RestCall("unknown path", "GET", "/nope")
    yield RestCall("unknown path below", "GET", "/connectors/src/nope")
    yield RestCall("post unknown path", "POST", "/nope", {})
    yield RestCall("wrong method", "DELETE", "/connectors")
    yield RestCall("wrong method on connector", "POST", "/connectors/src")
    yield RestCall("put on root", "PUT", "/", {})
    yield RestCall("patch on status", "PATCH", "/connectors/src/status", {})
    body = {"name": "t", "config": SOURCE}
    yield RestCall("text body", "POST", "/connectors", body, {"Content-Type": "text/plain"})
    yield RestCall("form body", "POST", "/connectors", "a=b", {"Content-Type": "application/x-www-form-urlencoded"})
    yield RestCall("no content type", "PUT", "/connectors/src/config", {**SOURCE, "name": "no"}, {"Content-Type": ""})
    charset = {"Content-Type": "application/json; charset=utf-8"}
    yield RestCall("content type with charset", "PUT", "/connectors/src/config", {**SOURCE, "name": "no"}, charset)
    yield RestCall("accept text", "GET", "/connectors", headers={"Accept": "text/plain"})
    yield RestCall("accept all", "GET", "/connectors", headers={"Accept": "*/*"})
    yield RestCall("accept browser", "GET", "/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    yield RestCall("head", "HEAD", "/connectors")
    yield RestCall("head unknown", "HEAD", "/connectors/nope")
    yield RestCall("options list", "OPTIONS", "/connectors")
    yield RestCall("options connector", "OPTIONS", "/connectors/src")
    yield RestCall("options config", "OPTIONS", "/connectors/src/config")
    yield RestCall("options unknown", "OPTIONS", "/nope")
    yield RestCall("double slash", "GET", "//connectors")
    yield RestCall("dot path", "GET", "/connectors/./src")


def _delete() -> Iterator[RestCall]:
    for name in ("halted", "paused", "put", "snk", "src"):
        yield RestCall(f"delete {name}", "DELETE", f"/connectors/{name}")
    yield RestCall("delete again", "DELETE", "/connectors/src")
    yield RestCall("deleted", "GET", "/connectors/src", ready=_is(404))
    yield RestCall("status of deleted", "GET", "/connectors/src/status", ready=_is(404))
    yield RestCall("list at the end", "GET", "/connectors", ready=lambda _, answer: not {"src", "snk"} & {*answer})
