"""The routes of Kafka Connect's REST API. Each takes a `ConnectCall` and returns a `ConnectAnswer`.

/  /health  /connectors  /connectors/{c}  .../config  .../status  .../restart  .../pause  .../resume  .../stop
.../tasks  .../tasks/{t}/status  .../tasks/{t}/restart  .../topics  .../topics/reset  .../offsets
.../inspect (ours: what the other side of a source says)
/connector-plugins  /connector-plugins/{p}/config  .../config/validate  /admin/loggers  /admin/loggers/{l}

Each route declares the right that its caller needs. Routes without one show only what the caller may see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import quote

from strandline._version import __version__
from strandline.connect.config import Option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.herder.interface import RequestFailed, TargetState
from strandline.connect.http import answers, bodies
from strandline.connect.http.call import ConnectAnswer, ConnectCall
from strandline.connect.http.rights import ConnectRight
from strandline.connect.validation.checks import check, options_of, plugin_of, validate
from strandline.connect.validation.common_options import CONNECTOR_CLASS, NAME
from strandline.connect.validation.config_infos import definition_json
from strandline.connect.validation.masking import masked, unmasked
from strandline.connect.validation.parts import part_config

API_VERSION: Final = "4.3.1"
"""The version of Kafka Connect whose API this is; tools compare it with what they need."""
NAMES_IN_LOCATION: Final = "!$&'()*+,;=:@"
_HEALTHY: Final = "Worker has completed startup and is ready to handle requests."

ConnectHandler = Callable[[ConnectCall], Awaitable[ConnectAnswer]]


class ConnectRoute(NamedTuple):
    """What answers a request, and the right that it needs on what its path names."""

    handler: ConnectHandler
    right: ConnectRight | None = None
    """None: the handler itself requires what it needs."""
    has_body: bool = False


def shape_of(path: tuple[str, ...]) -> str:
    """Return the route of a path: its words, with a star for each name in it."""
    names = {"connectors": (1,), "connector-plugins": (1,), "admin": (2,)}.get(path[0] if path else "", ())
    if path[2:3] == ("tasks",):
        names = (*names, 3)
    return "/".join("*" if at in names else part for at, part in enumerate(path))


def route_of(method: str, path: tuple[str, ...]) -> ConnectRoute:
    """Return what answers a request. Raise RequestFailed if nothing does."""
    shape = shape_of(path)
    found = ROUTES.get((method, shape))
    if found is None:
        raise RequestFailed(405, "HTTP 405 Method Not Allowed") if methods_of(shape) else _not_found()
    return found


def methods_of(shape: str) -> list[str]:
    """Return the methods that a route has."""
    found = [method for method, known in ROUTES if known == shape]
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"] if found else []


def _not_found() -> RequestFailed:
    return RequestFailed(404, "HTTP 404 Not Found")


@contextmanager
def _missing(message: str) -> Iterator[None]:
    """Say that something is not there in the words that Kafka Connect has for it on a route."""
    try:
        yield
    except RequestFailed as error:
        if error.status != 404:
            raise
        raise RequestFailed(404, message) from None


# The worker


async def root(call: ConnectCall) -> ConnectAnswer:
    about = {
        "version": API_VERSION,
        "commit": f"strandline-{__version__}",
        "kafka_cluster_id": call.herder.cluster_id(),
    }
    return ConnectAnswer(about)


async def health(call: ConnectCall) -> ConnectAnswer:
    trouble = call.herder.trouble()
    if trouble is None:
        return ConnectAnswer({"status": "healthy", "message": _HEALTHY})
    return ConnectAnswer({"status": "starting", "message": trouble}, 503)


# Connectors


async def list_connectors(call: ConnectCall) -> ConnectAnswer:
    names = [each for each in call.herder.connectors() if call.sees(each)]
    wanted = call.query.get("expand")
    if wanted is None:
        return ConnectAnswer(names)
    found = {}
    for name in names:
        shown = {}
        try:
            if "status" in wanted:
                shown["status"] = answers.status_json(call.herder.status(name))
            if "info" in wanted:
                shown["info"] = answers.info_json(call.plugins, call.herder.info(name))
        except RequestFailed:
            # It was just deleted, or is so new that it has no state yet.
            continue
        found[name] = shown
    return ConnectAnswer(found)


async def create(call: ConnectCall) -> ConnectAnswer:
    name, given, state = bodies.create_request(call.body)
    call.require(ConnectRight.CHANGE, name)
    config = await _texts(call, _with_name(name, unmasked(call.plugins, given, {})))
    info = await call.herder.create(name, config, state)
    return ConnectAnswer(answers.info_json(call.plugins, info), 201, _location(name))


async def get(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(answers.info_json(call.plugins, call.herder.info(call.name)))


async def delete(call: ConnectCall) -> ConnectAnswer:
    await call.herder.delete(call.name)
    return ConnectAnswer(status=204)


async def get_config(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(masked(call.plugins, call.herder.info(call.name).config))


async def put_config(call: ConnectCall) -> ConnectAnswer:
    given = bodies.config_of(bodies.json_object(call.body, is_text=True))
    config = await _texts(call, _with_name(call.name, unmasked(call.plugins, given, _stored(call))))
    is_new, info = await call.herder.put_config(call.name, config)
    body = answers.info_json(call.plugins, info)
    return ConnectAnswer(body, 201, _location(call.name)) if is_new else ConnectAnswer(body)


async def patch_config(call: ConnectCall) -> ConnectAnswer:
    given = bodies.config_of(bodies.json_object(call.body, is_text=True))
    stored = call.herder.info(call.name).config
    if given.get(NAME, call.name) != call.name:
        raise RequestFailed(400, _other_name(given[NAME], call.name))
    # What is hidden stays as it is.
    kept = unmasked(call.plugins, {**stored, **given}, stored)
    changes = {name: kept[name] for name in given}
    info = await call.herder.patch_config(call.name, changes)
    return ConnectAnswer(answers.info_json(call.plugins, info))


def _with_name(name: str, config: bodies.Given) -> bodies.Given:
    """Return a config with the name in it. Raise RequestFailed if it has another."""
    given = config.get(NAME)
    if given is not None and given != name:
        raise RequestFailed(400, _other_name(given, name))
    return {**config, NAME: name}


def _other_name(given: str | None, name: str) -> str:
    return f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})"


async def _texts(call: ConnectCall, config: bodies.Given) -> dict[str, str]:
    """Return a config without nulls. Raise RequestFailed, with everything else that is wrong, if it has one."""
    if None in config.values():
        await asyncio.to_thread(check, call.plugins, config, defaults=call.converters, resolve=call.resolve)
    return {name: value for name, value in config.items() if value is not None}


def _stored(call: ConnectCall) -> dict[str, str]:
    try:
        return dict(call.herder.info(call.name).config)
    except RequestFailed:
        return {}


def _location(name: str) -> str:
    return f"/connectors/{quote(name, safe=NAMES_IN_LOCATION)}"


async def get_status(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(answers.status_json(call.herder.status(call.name)))


async def restart(call: ConnectCall) -> ConnectAnswer:
    include_tasks, only_failed = call.flag("includeTasks"), call.flag("onlyFailed")
    with _missing(f"Unknown connector: {call.name}"):
        status = await call.herder.restart(call.name, include_tasks=include_tasks, only_failed=only_failed)
    if not include_tasks and not only_failed:
        return ConnectAnswer(status=204)
    return ConnectAnswer(answers.status_json(status), 202)


def _state_setter(state: TargetState, status: int) -> ConnectHandler:
    async def set_state(call: ConnectCall) -> ConnectAnswer:
        with _missing(f"Unknown connector {call.name}"):
            await call.herder.set_target_state(call.name, state)
        return ConnectAnswer(status=status)

    return set_state


# Tasks, topics and positions


async def list_tasks(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(answers.tasks_json(call.plugins, call.name, call.herder.task_configs(call.name)))


async def task_status(call: ConnectCall) -> ConnectAnswer:
    missing = f"No status found for task {call.name}-{call.task}"
    with _missing(missing):
        found = call.herder.status(call.name).tasks.get(call.task)
    if found is None:
        raise RequestFailed(404, missing)
    return ConnectAnswer(answers.task_json(call.task, found))


async def restart_task(call: ConnectCall) -> ConnectAnswer:
    with _missing(f"Unknown connector: {call.name}"):
        call.herder.info(call.name)
    await call.herder.restart_task(call.name, call.task)
    return ConnectAnswer(status=204)


async def get_topics(call: ConnectCall) -> ConnectAnswer:
    try:
        topics = list(call.herder.topics(call.name))
    except RequestFailed as error:
        if error.status != 404:
            raise
        # Kafka Connect says the same of a connector that is not there.
        topics = []
    return ConnectAnswer({call.name: {"topics": topics}})


async def reset_topics(call: ConnectCall) -> ConnectAnswer:
    try:
        await call.herder.reset_topics(call.name)
    except RequestFailed as error:
        if error.status != 404:
            raise
    return ConnectAnswer(status=202)


async def get_offsets(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(answers.offsets_json(await call.herder.offsets(call.name)))


async def inspect(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(dict(await call.herder.inspect(call.name)))


async def alter_offsets(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer({"message": await call.herder.alter_offsets(call.name, bodies.positions_of(call.body))})


async def reset_offsets(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer({"message": await call.herder.reset_offsets(call.name)})


# Plugins


async def list_plugins(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(answers.plugins_json(call.plugins, only_connectors=call.flag("connectorsOnly", True)))


async def plugin_config(call: ConnectCall) -> ConnectAnswer:
    options = await asyncio.to_thread(_options, call)
    return ConnectAnswer([definition_json(each) for each in options])


def _options(call: ConnectCall) -> list[Option]:
    try:
        plugin = call.plugins.find(call.name)
    except InvalidConnectorConfig:
        config = part_config(call.name)
        if config is None:
            raise RequestFailed(404, f"Unknown plugin {call.name}.") from None
        return list(config.options)
    try:
        return list(options_of(plugin).values())
    except InvalidConnectorConfig as error:
        raise RequestFailed(400, str(error)) from None


async def validate_config(call: ConnectCall) -> ConnectAnswer:
    config = bodies.config_of(bodies.json_object(call.body, is_text=True))
    call.require(ConnectRight.CHANGE, config.get(NAME) or None)
    included = config.get(CONNECTOR_CLASS)
    is_named = included is None or _short(included).endswith(_short(call.name))
    if not is_named and plugin_of(call.plugins, config) != _plugin_or_none(call):
        raise RequestFailed(400, f"Included connector type {included} does not match request type {call.name}")
    found = await asyncio.to_thread(validate, call.plugins, config, defaults=call.converters, resolve=call.resolve)
    return ConnectAnswer(found.json())


def _plugin_or_none(call: ConnectCall) -> object:
    try:
        return call.plugins.find(call.name)
    except InvalidConnectorConfig:
        return None


def _short(name: str) -> str:
    return name.removesuffix("Connector") or name


# Loggers


async def list_loggers(call: ConnectCall) -> ConnectAnswer:
    return ConnectAnswer(dict(call.herder.loggers()))


async def get_logger(call: ConnectCall) -> ConnectAnswer:
    found = call.herder.loggers().get(call.name)
    if found is None:
        known = logging.Logger.manager.loggerDict.get(call.name)
        if not isinstance(known, logging.Logger):
            raise RequestFailed(404, f"Logger {call.name} not found.")
        found = {"level": _level_name(known.getEffectiveLevel()), "last_modified": None}
    return ConnectAnswer(dict(found))


def _level_name(level: int) -> str:
    name = logging.getLevelName(level)
    return {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(name, name)


async def set_level(call: ConnectCall) -> ConnectAnswer:
    level = bodies.level_of(call.body)
    is_cluster_wide = call.query.get("scope", [""])[0].lower() == "cluster"
    names = await call.herder.set_level(call.name, level, is_cluster_wide=is_cluster_wide)
    return ConnectAnswer(status=204) if names is None else ConnectAnswer(list(names))


_SEE, _CHANGE, _ADMIN = ConnectRight.SEE, ConnectRight.CHANGE, ConnectRight.ADMIN
ROUTES: Final[dict[tuple[str, str], ConnectRoute]] = {
    ("GET", ""): ConnectRoute(root),
    ("GET", "health"): ConnectRoute(health),
    ("GET", "connectors"): ConnectRoute(list_connectors),
    ("POST", "connectors"): ConnectRoute(create, has_body=True),
    ("GET", "connectors/*"): ConnectRoute(get, _SEE),
    ("DELETE", "connectors/*"): ConnectRoute(delete, _CHANGE),
    ("GET", "connectors/*/config"): ConnectRoute(get_config, _SEE),
    ("PUT", "connectors/*/config"): ConnectRoute(put_config, _CHANGE, has_body=True),
    ("PATCH", "connectors/*/config"): ConnectRoute(patch_config, _CHANGE, has_body=True),
    ("GET", "connectors/*/status"): ConnectRoute(get_status, _SEE),
    ("POST", "connectors/*/restart"): ConnectRoute(restart, _CHANGE),
    ("PUT", "connectors/*/pause"): ConnectRoute(_state_setter("PAUSED", 202), _CHANGE),
    ("PUT", "connectors/*/resume"): ConnectRoute(_state_setter("STARTED", 202), _CHANGE),
    ("PUT", "connectors/*/stop"): ConnectRoute(_state_setter("STOPPED", 204), _CHANGE),
    ("GET", "connectors/*/tasks"): ConnectRoute(list_tasks, _SEE),
    ("GET", "connectors/*/tasks/*/status"): ConnectRoute(task_status, _SEE),
    ("POST", "connectors/*/tasks/*/restart"): ConnectRoute(restart_task, _CHANGE),
    ("GET", "connectors/*/topics"): ConnectRoute(get_topics, _SEE),
    ("PUT", "connectors/*/topics/reset"): ConnectRoute(reset_topics, _CHANGE),
    ("GET", "connectors/*/offsets"): ConnectRoute(get_offsets, _SEE),
    ("GET", "connectors/*/inspect"): ConnectRoute(inspect, _SEE),
    ("PATCH", "connectors/*/offsets"): ConnectRoute(alter_offsets, _CHANGE, has_body=True),
    ("DELETE", "connectors/*/offsets"): ConnectRoute(reset_offsets, _CHANGE),
    ("GET", "connector-plugins"): ConnectRoute(list_plugins),
    ("GET", "connector-plugins/*/config"): ConnectRoute(plugin_config),
    ("PUT", "connector-plugins/*/config/validate"): ConnectRoute(validate_config, has_body=True),
    ("GET", "admin/loggers"): ConnectRoute(list_loggers, _ADMIN),
    ("GET", "admin/loggers/*"): ConnectRoute(get_logger, _ADMIN),
    ("PUT", "admin/loggers/*"): ConnectRoute(set_level, _ADMIN, has_body=True),
}
