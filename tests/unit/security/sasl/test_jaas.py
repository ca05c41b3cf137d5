"""The text of `sasl.jaas.config`, as Kafka's files have it, and that its secrets never show."""

from __future__ import annotations

import pytest

from strandline.errors import InvalidConfig
from strandline.security.sasl.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_and_the_own_login() -> None:
    module = parse_jaas(
        f"""{PLAIN} required // the class
        username="admin" password='p"w' /* and
        users */ user_admin="p\\"w" user_alice="a;=b" user_b-c=word serviceName="kafka";"""
    )
    assert module.name == PLAIN
    assert (module.option("username"), module.option("password"), module.option("none")) == ("admin", 'p"w', None)
    assert module.users == {"admin": 'p"w', "alice": "a;=b", "b-c": "word"}


def test_a_module_without_options() -> None:
    assert parse_jaas(f"{PLAIN} REQUIRED;").users == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN};",
        f"{PLAIN} required",
        f'{PLAIN} needed user_a="hunter2";',
        f'{PLAIN} required user_a="hunter2"',
        f'{PLAIN} required user_a "hunter2";',
        f"{PLAIN} required user_a=;",
        f'{PLAIN} required user_a="hunter2;',
        f'{PLAIN} required user_a="hunter2" user_a="hunter2";',
        f'{PLAIN} required user_a="hunter2"; {PLAIN} required user_b="hunter2";',
        f"{PLAIN} required user_a=hunter2!;",
    ],
)
def test_refused_without_the_secret(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.jaas\.config") as refused:
        parse_jaas(text)
    assert "hunter2" not in str(refused.value)


def test_secrets_do_not_show() -> None:
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required password="hunter2";'))
