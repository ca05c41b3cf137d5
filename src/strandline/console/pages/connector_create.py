"""The form of a new connector: made of what the worker says of its class, and checked by the worker at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.common.plain_words import count
from strandline.cli.connect.worker_api import CLASS, ConnectApi, checked_by_worker, sentence_of
from strandline.console.context import PageContext
from strandline.console.declarations import (
    ActionDone,
    ActionField,
    ConsoleAction,
    ConsolePage,
    PageModule,
    PageQuery,
    PageTable,
    Values,
)
from strandline.console.failures import PageFailed
from strandline.console.pages.connectors import connector_path
from strandline.console.reading.connect_reading import WORKERS, plugin_classes, shown_setting
from strandline.console.reading.web_services import asked, require_own_login, workers_of
from strandline.console.tables import TableHead

PREFIX: Final = "s."
"""In front of names of settings in the URL."""
SETTINGS_MAX: Final = 300
SECRET_TYPE: Final = "PASSWORD"
ERRORS_SHOWN: Final = 5
_OWN: Final = ("name", CLASS, "connector.plugin.version")
HEADS: Final = (
    TableHead("class", "Class", "name", link=lambda row: f"/connectors/create?{urlencode({'class': row['class']})}"),
    TableHead("kind", "Kind", "text"),
    TableHead("version", "Version", "text", is_wide=True),
)


async def create_form(context: PageContext) -> Mapping[str, Any]:
    """Answer what is to be filled in."""
    if context.read_only:
        raise PageFailed(403, f"Nothing can be changed: {context.read_only}")
    api, chosen = workers_of(context), context.query.get("class", "")
    if not chosen:
        found = await asked(context, WORKERS, lambda: plugin_classes(api))
        table = context.table(HEADS, found, caption="Classes of connectors", searched=("class", "kind"), sort="class")
        return {"step": "class", "answer": f"The worker has {count(len(found), 'kind')} of connectors.", "table": table}
    name = context.query.get("connector", "").strip()
    given = {
        key.removeprefix(PREFIX): value.strip()
        for key, value in context.query.items()
        if key.startswith(PREFIX) and value.strip()
    }
    secret = context.query.get("secret", "")
    told = await _validated(context, api, chosen, {"name": name or "unnamed", CLASS: chosen, **given})
    settings = [each for each in map(_setting, told["configs"]) if each is not None][:SETTINGS_MAX]
    for each in settings:
        each["given"] = given.get(each["name"], "")
    errors = [
        f"{each['name']}: {each['error']}"
        for each in settings
        if each["error"] and not (each["is_secret"] and each["name"] == secret)
    ]
    is_begun = bool(name or given)
    is_ready = bool(name) and not errors
    for each in settings:
        # A form that is still empty is not wrong.
        each["error"] = each["error"] if is_begun and each["name"] != secret else ""
    first = [each for each in settings if each["is_required"] or each["given"] or each["error"] or each["is_high"]]
    return {
        "step": "settings",
        "class": chosen,
        "connector": name,
        "secret": secret,
        "secrets": [each["name"] for each in settings if each["is_secret"]],
        "is_begun": is_begun,
        "is_ready": is_ready,
        "errors": errors if is_begun else [],
        "answer": _answer(name, errors, is_begun=is_begun),
        "first": [each for each in first if not each["is_secret"]],
        "others": [each for each in settings if each not in first and not each["is_secret"]],
        "config": "\n".join(f"{key}={value}" for key, value in sorted(given.items())),
    }


def _answer(name: str, errors: Sequence[str], *, is_begun: bool) -> str:
    if not is_begun:
        return "Give it a name and its settings; the worker checks them."
    if errors:
        return f"The worker finds {count(len(errors), 'setting')} wrong."
    return "The worker accepts these settings." if name else "It needs a name."


async def _validated(context: PageContext, api: ConnectApi, plugin: str, config: Mapping[str, str]) -> Any:
    def ask() -> Any:
        told = api.ask("PUT", "connector-plugins", plugin, "config", "validate", body=dict(config))
        list(told["configs"])
        return told

    try:
        return await asked(context, WORKERS, ask)
    except NotFound:
        raise PageFailed(404, f"The worker has no class {plugin}", "choose one of the list of classes") from None


def _setting(found: Mapping[str, Any]) -> dict[str, Any] | None:
    definition, value = found["definition"], found["value"]
    name = str(definition["name"])
    if name in _OWN or not value.get("visible", True):
        return None
    choices = [str(each) for each in value.get("recommended_values") or ()][:200]
    kind = str(definition["type"])
    default = definition.get("default_value")
    return {
        "name": name,
        "is_secret": kind == SECRET_TYPE,
        "type": kind.lower(),
        "choices": ["true", "false"] if kind == "BOOLEAN" else choices,
        "default": "" if default is None else shown_setting(name, str(default)),
        "is_required": bool(definition.get("required")),
        "is_high": definition.get("importance") == "HIGH",
        "group": str(definition.get("group") or "Settings"),
        "about": str(definition.get("documentation") or ""),
        "error": str((value.get("errors") or [""])[0]),
    }


# The action


def _config(values: Values) -> dict[str, str]:
    found = {"name": values["connector"], CLASS: values["class"]}
    for line in filter(None, map(str.strip, values["config"].splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise PageFailed(400, f"{line} is no setting", "write NAME=VALUE, each on a line of its own")
        found[name.strip()] = value.strip()
    if values["secret"] and values["secret_value"]:
        found[values["secret"]] = values["secret_value"]
    return found


async def plan(context: PageContext, values: Values) -> Sequence[str]:
    """Return what would be made. Raise PageFailed if the worker finds a setting wrong."""
    api, config = workers_of(context), _config(values)
    require_own_login(context, context.cluster.connect, "the workers")

    def check() -> list[str]:
        _refuse_known(api, values["connector"])
        wrong = [
            each for each in checked_by_worker(api, config) if each.setting != values["secret"] or not each.setting
        ]
        return [sentence_of(each) for each in wrong]

    wrong = await asked(context, WORKERS, check)
    if wrong and not values["secret"]:
        raise PageFailed(400, f"The worker finds it wrong: {'; '.join(wrong[:ERRORS_SHOWN])}", "correct the settings")
    lines = [f"{values['connector']} is created, and its tasks start at once"]
    if values["secret"]:
        lines += [f"{values['secret']} gets the secret that you give below", *(f"without it: {each}" for each in wrong)]
    return lines


async def create(context: PageContext, values: Values) -> ActionDone:
    api, config = workers_of(context), _config(values)
    require_own_login(context, context.cluster.connect, "the workers")
    if values["secret"] and not values["secret_value"]:
        raise PageFailed(400, f"{values['secret']} has no value", "give the secret, or leave its name out")

    def ask() -> None:
        _refuse_known(api, values["connector"])
        api.ask("POST", "connectors", body={"name": values["connector"], "config": config})

    await asked(context, WORKERS, ask)
    return ActionDone(f"Connector {values['connector']} was created.", connector_path(values["connector"]))


def _refuse_known(api: ConnectApi, name: str) -> None:
    # A worker answers a name that is taken as it answers while it rebalances, and that would be tried again.
    if api.config(name) is not None:
        raise CommandFailed(f"there is a connector {name} already", hint="choose another name")


CREATE: Final = ConsoleAction(
    name="connector-create",
    title="Create connector {connector}",
    button="Create",
    run=create,
    command=lambda values: ["connect", "apply", "FILE"],
    server="connect",
    plan=plan,
    consequence="The connector {connector} begins to move records.",
    fields=(
        ActionField("connector", "Name"),
        ActionField("class", "Class"),
        ActionField("config", "Settings", "area", hint="NAME=VALUE, one a line", is_required=False),
        ActionField(
            "secret",
            "Secret setting",
            hint="The name of a setting whose value is asked for at the confirmation",
            is_required=False,
        ),
        ActionField("secret_value", "Value of the secret setting, if one is named", "secret", is_required=False),
    ),
    under="connectors",
)
MODULE: Final = PageModule(
    pages=(
        ConsolePage(
            name="connector_create",
            path="/connectors/create",
            title="New connector",
            question="What is to be moved, from where, to where?",
            model=create_form,
            template="connector_create.html",
            tables=(PageTable("table", HEADS),),
            queries=(
                PageQuery("class", "The class of connector"),
                PageQuery("connector", "Its name"),
                PageQuery("secret", "The setting whose value is asked for at the confirmation"),
            ),
            under="connectors",
        ),
    ),
    actions=(CREATE,),
)
