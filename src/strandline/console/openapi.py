"""The description of the API by OpenAPI 3.1, made of the declared pages and actions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from strandline import __version__
from strandline.console.declarations import ActionField, ConsoleAction, ConsolePage, PageModule, PageTable
from strandline.console.tables import ROWS_SHOWN, ROWS_SHOWN_MAX, TableHead

PATH: Final = "/api/openapi.json"
_TEXT: Final = {"type": ["string", "null"]}
_NUMBER: Final = {"type": ["number", "null"]}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": ["string", "number", "boolean", "null"]},
    "name": {"type": ["string", "number", "null"]},
    "verdict": _TEXT,
    "number": {"type": ["integer", "number", "null"]},
    "bytes": {**_NUMBER, "description": "bytes"},
    "rate": {**_NUMBER, "description": "a second"},
    "span": {**_NUMBER, "description": "seconds"},
    "time": {**_NUMBER, "description": "milliseconds since 1970"},
    "share": {**_NUMBER, "description": "0 to 1"},
    "list": {"type": ["array", "null"], "items": {"type": ["string", "number"]}},
}
"""What a value of a column is in JSON, by the kind of the column."""
_DESCRIPTION: Final = (
    "Every page of the console as JSON. A cluster with a login asks for `Authorization: Basic` or `Bearer` with each "
    "request, and answers with the rights of that user. Figures of a page may be some seconds old; `notes` says so."
)
_FAILURE: Final = {
    "description": "What went wrong, in a sentence, and what to do",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/failure"}}},
}


def describe(modules: Sequence[PageModule], api: str) -> dict[str, Any]:
    """Return the description; `api` is the path before those of pages, with the parameter `{cluster}`."""
    paths: dict[str, Any] = {"/api/v1": {"get": _clusters()}}
    for page in (page for module in modules for page in module.pages):
        paths[path_of(api, page.path)] = {"get": _page(page)}
    for action in (action for module in modules for action in module.actions):
        paths[f"{api}/do/{action.name}"] = {"post": _action(action)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Strandline console", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "SCRAM or PLAIN, as the cluster has it"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "OAUTHBEARER"},
            },
            "schemas": {"failure": _failure()},
        },
    }


def path_of(api: str, path: str) -> str:
    """Return the path of a page as OpenAPI writes it."""
    return api + ("" if path == "/" else re.sub(r":path}", "}", path))


def _clusters() -> dict[str, Any]:
    names = {"type": "array", "items": {"type": "string"}}
    return {
        "operationId": "clusters",
        "summary": "Which clusters does this console know?",
        "parameters": [],
        "responses": {"200": _answer({"clusters": names}, ("clusters",)), "default": _FAILURE},
    }


def _page(page: ConsolePage) -> dict[str, Any]:
    tables = {each.key: _table(each) for each in page.tables}
    properties = {
        "question": {"type": "string"},
        "notes": {"type": "array", "items": {"type": "string"}, "description": "What is old or missing, and why"},
        **tables,
    }
    return {
        "operationId": page.name,
        "summary": page.question,
        "parameters": [
            *_path_parameters(page.path),
            *(_query(each.name, each.text, is_required=each.is_required) for each in page.queries),
            *(parameter for each in page.tables for parameter in _table_parameters(each)),
            _query("export", "json: tables have every row"),
        ],
        "responses": {"200": _answer(properties, ("question", "notes")), "default": _FAILURE},
    }


def _action(action: ConsoleAction) -> dict[str, Any]:
    properties = {each.name: _field(each) for each in action.fields}
    required = [each.name for each in action.fields if each.is_required and not each.default and each.kind != "flag"]
    if action.is_dangerous:
        what = (
            f"The value of {action.typed}, to confirm" if action.phrase is None else "The number and kind, to confirm"
        )
        properties["typed"] = {"type": "string", "description": what}
        required.append("typed")
    done = {name: {"type": "string"} for name in ("done", "location", "command")}
    token = {
        "name": "x-csrf-token",
        "in": "header",
        "required": False,
        "schema": {"type": "string"},
        "description": "The token of the session, where no Authorization comes with the request",
    }
    return {
        "operationId": f"do-{action.name}",
        "summary": re.sub(r"\s*{\w+}", "", action.title),
        "description": re.sub(r"{(\w+)}", r"`\1`", action.consequence),
        "parameters": [*_path_parameters(""), token],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"type": "object", "properties": properties, "required": required}}
            },
        },
        "responses": {"200": _answer(done, tuple(done)), "default": _FAILURE},
    }


def _field(field: ActionField) -> dict[str, Any]:
    found: dict[str, Any] = {"type": ["string", "integer"] if field.kind == "number" else "string"}
    if field.kind == "choice":
        found["enum"] = list(field.choices)
    if field.kind == "flag":
        found["enum"] = ["true", ""]
    if field.default:
        found["default"] = field.default
    words = [field.label, field.hint, "Names, separated by blanks" if field.kind == "names" else ""]
    return found | {"description": ". ".join(filter(None, words))}


def _table(table: PageTable) -> dict[str, Any]:
    row = {"type": "object", "properties": {each.key: _column(each) for each in table.heads}}
    counts = {name: {"type": "integer"} for name in ("total", "found", "page", "pages")}
    texts = {name: {"type": "string"} for name in ("sort", "search")}
    return {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": row}, **counts, **texts},
        "required": ["rows", *counts, *texts],
    }


def _column(head: TableHead) -> dict[str, Any]:
    kind = KINDS[head.kind]
    words = [head.label, head.hint, kind.get("description", "")]
    return {**kind, "description": ". ".join(filter(None, words))}


def _path_parameters(path: str) -> Iterable[dict[str, Any]]:
    for name in ("cluster", *re.findall(r"{(\w+)(?::path)?}", path)):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _table_parameters(table: PageTable) -> Iterable[dict[str, Any]]:
    keys = ", ".join(each.key for each in table.heads if each.is_sorted)
    yield _query(f"{table.prefix}q", "Rows with each word; between slashes a regular expression")
    yield _query(f"{table.prefix}sort", f"A column, with - in front for the largest first: {keys}")
    yield _query(f"{table.prefix}page", "Which page, from 1", kind="integer")
    yield _query(
        f"{table.prefix}size", f"Rows of a page, {ROWS_SHOWN} by default, {ROWS_SHOWN_MAX} at most", kind="integer"
    )


def _query(name: str, text: str, *, is_required: bool = False, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "query", "required": is_required, "description": text, "schema": {"type": kind}}


def _answer(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"description": "The answer", "content": {"application/json": {"schema": schema}}}


def _failure() -> dict[str, Any]:
    properties = {"error": {"type": "string"}, "advice": _TEXT, "status": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["error", "status"]}
