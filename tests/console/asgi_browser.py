"""A browser without a screen: it keeps cookies and reads forms, and calls the application without a port."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

TIMEOUT_S = 60
HOST = "127.0.0.1:8080"


class _Html(HTMLParser):
    """The text, links and fields of a page, and what a script could be smuggled in by."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.fields: list[dict[str, str]] = []
        self.scripts: list[dict[str, str]] = []
        self.suspects: list[str] = []
        self.elements: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: text or "" for name, text in attrs}
        self.elements.append(tag)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("input", "textarea", "button", "select"):
            self.fields.append(given)
        if tag == "script":
            self.scripts.append(given)
        self.suspects += [f"{tag} {name}" for name in given if name.startswith("on") or name == "style"]
        self.suspects += [f"{tag} {text}" for text in given.values() if text.strip().lower().startswith("javascript:")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@dataclass
class Answer:
    """What the application answered."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    cookies: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def html(self) -> _Html:
        parsed = _Html()
        parsed.feed(self.text)
        return parsed

    @property
    def words(self) -> str:
        """What a visitor reads."""
        return " ".join(" ".join(self.html.words).split())

    def value(self, name: str) -> str:
        """Return the value of the first field of this name."""
        return next(each.get("value", "") for each in self.html.fields if each.get("name") == name)


class AsgiBrowser:
    """One browser at one console."""

    def __init__(self, app: Any, host: str = HOST, address: str = "127.0.0.1") -> None:
        self.app = app
        self.host = host
        self.address = address
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers=headers)

    async def follow(self, answer: Answer) -> Answer:
        """Go where a redirect leads."""
        assert answer.status == 303, (answer.status, answer.words)
        return await self.get(answer.headers["location"])

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        given = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{self.host}"} | headers
        return await self.ask("POST", path, urlencode(form).encode(), given)

    async def post_json(self, path: str, value: Any, **headers: str) -> Answer:
        return await self.ask("POST", path, json.dumps(value).encode(), {"content-type": "application/json"} | headers)

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request and read the whole answer."""
        found = Answer(0, {})
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.get_running_loop().create_future()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            self._take(found, message)

        async with asyncio.timeout(TIMEOUT_S):
            await self.app(self._scope(method, path, body, headers or {}), receive, send)
        return found

    async def until(self, path: str, is_there: Callable[[Answer], bool]) -> Answer:
        """Ask again until the answer has what comes a moment later."""
        async with asyncio.timeout(TIMEOUT_S):
            # Nothing tells when: it is the cluster that changes.
            while True:
                if is_there(answer := await self.get(path)):
                    return answer
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def events(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
        """Open a stream and yield its events, comments as `{"comment": ...}`. Leaving the block closes the tab."""
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        gone = asyncio.Event()
        found = Answer(0, {})
        is_first = True

        async def receive() -> dict[str, Any]:
            nonlocal is_first
            if is_first:
                is_first = False
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            self._take(found, message)
            if message["type"] == "http.response.body":
                pieces.put_nowait(message.get("body", b""))

        async def run() -> None:
            try:
                await self.app(self._scope("GET", path, b"", headers), receive, send)
            finally:
                pieces.put_nowait(None)

        async def read() -> AsyncIterator[dict[str, str]]:
            text = ""
            while True:
                async with asyncio.timeout(TIMEOUT_S):
                    piece = await pieces.get()
                if piece is None:
                    return
                text += piece.decode()
                while "\n\n" in text:
                    block, _, text = text.partition("\n\n")
                    yield _event(block)

        task = asyncio.create_task(run())
        try:
            yield read()
        finally:
            gone.set()
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.gather(task, return_exceptions=True)

    def _take(self, found: Answer, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            for name, value in message["headers"]:
                found.headers[name.decode().lower()] = value.decode()
                if name.lower() == b"set-cookie":
                    found.cookies.append(value.decode())
                    for cookie in SimpleCookie(value.decode()).values():
                        self.cookies[cookie.key] = cookie.value
        elif message["type"] == "http.response.body":
            found.body += message.get("body", b"")

    def _scope(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        parts = urlsplit(target)
        given = {"host": self.host} | {name.replace("_", "-").lower(): text for name, text in headers.items()}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        if body:
            given["content-length"] = str(len(body))
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), text.encode("latin-1")) for name, text in given.items()],
            "client": (self.address, 50_000),
            "server": ("127.0.0.1", 8080),
        }


def _event(block: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, text = line.partition(":")
        key = name or "comment"
        text = text.removeprefix(" ")
        found[key] = f"{found[key]}\n{text}" if key in found else text
    return found
