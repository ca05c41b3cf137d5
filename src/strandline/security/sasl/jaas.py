"""The text of `sasl.jaas.config`: a login module and its options, as Kafka's files have them.

    org.apache.kafka.common.security.plain.PlainLoginModule required
      username="admin" password="secret" user_admin="secret" user_alice="other";

Options are secrets. Neither errors nor `repr` show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from strandline.errors import InvalidConfig

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_USER: Final = "user_"
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/"""
    r"""|(?P<word>[\w.$\-]+)|(?P<mark>[=;])|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'""",
    re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class LoginModule:
    """One login module. Its options are read by name."""

    __slots__ = ("_options", "name")

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self._options = dict(options)

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"

    def option(self, name: str) -> str | None:
        return self._options.get(name)

    @property
    def users(self) -> dict[str, str]:
        """Return the passwords of PLAIN by user: the options `user_NAME`."""
        return {name[len(_USER) :]: value for name, value in self._options.items() if name.startswith(_USER)}


def parse_jaas(text: str, *, setting: str = "sasl.jaas.config") -> LoginModule:
    """Return the login module of a text. Raise InvalidConfig, which names the place and no secret, for another form."""
    tokens = list(_tokens(text, setting))
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[-1] != ("mark", ";"):
        raise InvalidConfig(f'{setting} is no login module; expected: CLASS required key="value" ... ;')
    if tokens[1][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        raise InvalidConfig(f"{setting} has no control flag after the class; expected required")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if ("mark", ";") in rest:
        raise InvalidConfig(f"{setting} has several login modules; expected one")
    for at in range(0, len(rest), 3):
        option = rest[at : at + 3]
        if len(option) < 3 or option[0][0] == "mark" or option[1] != ("mark", "=") or option[2][0] == "mark":
            raise InvalidConfig(f'{setting}: option {at // 3 + 1} cannot be read; expected key="value"')
        if option[0][1] in options:
            raise InvalidConfig(f"{setting}: option {at // 3 + 1} has the name of an earlier one")
        options[option[0][1]] = option[2][1]
    return LoginModule(tokens[0][1], options)


def _tokens(text: str, setting: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidConfig(f"{setting} cannot be read at character {at + 1}; are all values in quotes?")
        at = match.end()
        for kind in ("word", "mark"):
            if match[kind] is not None:
                yield kind, match[kind]
        for kind in ("double", "single"):
            if match[kind] is not None:
                yield "quoted", re.sub(r"\\(.)", _unescaped, match[kind], flags=re.DOTALL)


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])
