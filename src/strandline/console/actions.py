"""How an action is asked for: its form, its confirmation, and the one POST. Each is audited, also if it is refused."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, Values
from strandline.console.failures import EXPECTED, PageFailed, words_of
from strandline.console.reading.web_services import shown_url
from strandline.console.rendering import shell_words
from strandline.console.screens import Screens
from strandline.console.sessions import ConsoleSession
from strandline.console.visits import Visits, address_of

FIELDS_MAX: Final = 200
NUMBER_DIGITS_MAX: Final = 20
FORGED: Final = "This form is not of this console, or too old"
_FORM: Final = "application/x-www-form-urlencoded"


class ActionRequests:
    """The actions of all modules."""

    def __init__(self, visits: Visits, screens: Screens, actions: Sequence[ConsoleAction]) -> None:
        self._visits = visits
        self._screens = screens
        self._actions = {action.name: action for action in actions}

    async def show(self, request: Request, session: ConsoleSession) -> Response:
        """Show the form; with `review=1`, or if there is nothing to fill in, the confirmation."""
        action = self._action(request)
        context = await self._visits.visit(request, session)
        _require_changes(context)
        values = await _values(context, action, _of_query(action, request.query_params))
        is_open = any(not each.is_fixed and each.kind != "secret" for each in action.fields)
        if is_open and "review" not in request.query_params:
            return self._form(request, context, action, values)
        try:
            _check(action, values, secrets_too=False)
            plan = await action.plan(context, values) if action.plan is not None else ()
        except (*EXPECTED, PageFailed) as error:
            if not is_open:
                raise
            return self._form(request, context, action, values, error)
        return self._confirmation(request, context, action, values, plan)

    async def do(self, request: Request, session: ConsoleSession) -> Response:
        """Do what a confirmed form asks for, and go on to the page that shows it."""
        action = self._action(request)
        form = await read_form(request)
        self._refuse_forged(request, session, form.get("csrf", ""), action)
        context = await self._visits.visit(request, session)
        values = await _values(context, action, form, with_defaults=False)
        done = await self._done(request, context, action, values, form.get("typed", ""))
        self._visits.sessions.flash(session, done.sentence)
        return RedirectResponse(f"/c/{context.cluster.name}{done.location}", 303)

    async def do_json(self, request: Request, session: ConsoleSession) -> Response:
        """Do what a JSON object asks for. A program with a login in its header needs no token; a page needs one."""
        action = self._action(request)
        body = await _read_object(request)
        if not self._visits.has_header_login(request):
            self._refuse_forged(request, session, request.headers.get("x-csrf-token", ""), action)
        context = await self._visits.visit(request, session)
        values = await _values(context, action, {name: str(value) for name, value in body.items()})
        done = await self._done(request, context, action, values, str(body.get("typed", "")))
        words = " && ".join(shell_words(each) for each in commands_of(context, action, values))
        return JSONResponse({"done": done.sentence, "location": done.location, "command": words})

    async def _done(
        self, request: Request, context: PageContext, action: ConsoleAction, values: Values, typed: str
    ) -> ActionDone:
        _require_changes(context)
        _check(action, values, secrets_too=True)
        if action.is_dangerous and not hmac.compare_digest(typed.encode(), _phrase(action, values).encode()):
            raise PageFailed(400, f"Nothing was done: {_phrase(action, values)} was not typed as it is", "type it")
        noted = {
            "user": context.user,
            "address": address_of(request),
            "cluster": context.cluster.name,
            "action": action.name,
            "target": ", ".join(values[each.name] for each in action.fields if each.is_fixed) or _first(values),
            "command": " && ".join(shell_words(each) for each in _commands(action, values)),
        }
        # Before it is done as well, because the process may end in between.
        context.audit.note(**noted, outcome="begun")
        try:
            done = await action.run(context, values)
        except Exception as error:
            words = words_of(error)
            context.audit.note(**noted, outcome="denied" if words.status == 403 else "failed", detail=words.sentence)
            raise
        finally:
            context.reading.shared.forget()
        context.audit.note(**noted, outcome="done", detail=done.sentence)
        return done

    def _form(
        self,
        request: Request,
        context: PageContext,
        action: ConsoleAction,
        values: Values,
        error: BaseException | None = None,
    ) -> Response:
        words = None if error is None else words_of(error)
        return self._screens.action(
            request,
            context,
            action,
            200 if words is None else words.status,
            title=_filled(action.title, values),
            values=values,
            words=words,
            review=False,
        )

    def _confirmation(
        self, request: Request, context: PageContext, action: ConsoleAction, values: Values, plan: Sequence[str]
    ) -> Response:
        return self._screens.action(
            request,
            context,
            action,
            title=_filled(action.title, values),
            consequence=_filled(action.consequence, values),
            values=values,
            plan=plan,
            commands=commands_of(context, action, values),
            phrase=_phrase(action, values) if action.is_dangerous else "",
            words=None,
            review=True,
        )

    def _action(self, request: Request) -> ConsoleAction:
        found = self._actions.get(request.path_params["action"])
        if found is None:
            raise PageFailed(404, "This console has no such action")
        return found

    def _refuse_forged(self, request: Request, session: ConsoleSession, token: str, action: ConsoleAction) -> None:
        if self._visits.sessions.is_forged(session, token):
            cluster = request.path_params["cluster"]
            user = session.users[cluster].name if cluster in session.users else ""
            self._visits.audit.note(
                user=user,
                address=address_of(request),
                cluster=cluster[:40],
                action=action.name,
                outcome="refused",
                detail=FORGED,
            )
            raise PageFailed(403, FORGED, "go back, load the page again, and confirm again")


def commands_of(context: PageContext, action: ConsoleAction, values: Values) -> list[list[str]]:
    """Return the whole commands that do the same, one after the other."""
    return [_whole_command(context, action, words) for words in _commands(action, values)]


def _commands(action: ConsoleAction, values: Values) -> list[Sequence[str]]:
    """Return the words of these commands that are the action's own, without its secrets."""
    shown = {each.name: "..." if each.kind == "secret" else values[each.name] for each in action.fields}
    more = action.more_commands(shown) if action.more_commands is not None else ()
    return [action.command(shown), *more]


def _whole_command(context: PageContext, action: ConsoleAction, command: Sequence[str]) -> list[str]:
    words = ["strandline", *command]
    cluster = context.cluster
    if action.server == "registry":
        return [*words, "--registry", shown_url(cluster.registry)]
    if action.server == "connect":
        return [*words, "--url", shown_url(cluster.connect)]
    words += ["--bootstrap-server", cluster.bootstrap]
    return words + (["--command-config", "FILE"] if cluster.has_login else [])


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raise PageFailed for another body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise PageFailed(415, f"A form is expected ({_FORM})")
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=FIELDS_MAX))
    except ValueError:
        raise PageFailed(400, "The form cannot be read") from None


async def _read_object(request: Request) -> Mapping[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise PageFailed(415, "A JSON object is expected (application/json)")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise PageFailed(400, "A JSON object is expected")
    return body


def _of_query(action: ConsoleAction, query: QueryParams) -> dict[str, str]:
    """Return the fields that the URL has."""
    found = {}
    for each in action.fields:
        name = each.name if each.name in query or not each.alias else each.alias
        if each.kind == "names" or name == each.alias:
            found[each.name] = " ".join(query.getlist(name))
        elif name in query:
            found[each.name] = query[name]
    return found


async def _values(
    context: PageContext, action: ConsoleAction, given: Mapping[str, str], *, with_defaults: bool = True
) -> dict[str, str]:
    """Return the value of each field: what was given, else what the cluster has, else the default."""
    values = {each.name: given.get(each.name, each.default if with_defaults else "").strip() for each in action.fields}
    if action.fill is None or all(each.name in given for each in action.fields):
        return values
    filled = await action.fill(context, values)
    return values | {name: text for name, text in filled.items() if name not in given}


def _phrase(action: ConsoleAction, values: Values) -> str:
    return values[action.typed] if action.phrase is None else action.phrase(values)


def _require_changes(context: PageContext) -> None:
    if why := context.read_only:
        raise PageFailed(403, f"Nothing can be changed: {why}")


def _check(action: ConsoleAction, values: Values, *, secrets_too: bool) -> None:
    for each in action.fields:
        if each.kind == "secret" and not secrets_too:
            continue
        if why := _why_wrong(each, values[each.name]):
            raise PageFailed(400, f"{each.label}: {why}")


def _why_wrong(wanted: ActionField, text: str) -> str:
    if not text:
        if wanted.kind == "names":
            return "none was chosen; go back, and choose some by the boxes before their names"
        return "it is missing" if wanted.is_required and wanted.kind != "flag" else ""
    if wanted.kind == "number" and not (text.isascii() and text.removeprefix("-").isdigit()):
        return f"{text} is no number"
    if wanted.kind == "number" and (len(text) > NUMBER_DIGITS_MAX or abs(int(text)) > wanted.number_max):
        return f"{text[:20]} is too large"
    if wanted.kind == "choice" and text not in wanted.choices:
        return f"{text} is unknown; expected {', '.join(wanted.choices)}"
    if wanted.kind == "flag" and text != "true":
        return f"{text} is unknown; expected true"
    return ""


def _filled(text: str, values: Values) -> str:
    return text.format_map(values).strip()


def _first(values: Values) -> str:
    return next(iter(values.values()), "")
