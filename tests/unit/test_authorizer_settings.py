"""The settings of the authorizer: what is read, and what stops the start with a sentence."""

from __future__ import annotations

import pytest

from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig


def load(**settings: str) -> BrokerConfig:
    return BrokerConfig.load("", {name.replace("_", "."): value for name, value in settings.items()})


def test_without_settings_there_is_no_authorizer() -> None:
    config = load()
    assert config.authorizer_class_name == ""
    assert config.authorizer_mode == "enforce"
    assert config.super_user_names() == ()
    assert not config.allow_everyone_if_no_acl_found
    assert load(authorizer_class_name="").authorizer_class_name == ""


def test_super_users_are_separated_by_semicolons() -> None:
    config = load(super_users=" User:admin ;User:CN=a,O=b:c;; ")
    assert config.super_user_names() == ("User:admin", "User:CN=a,O=b:c")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"authorizer_class_name": "com.example.Mine"}, "Java classes cannot be loaded.*Expected.*StandardAuthorizer"),
        ({"super_users": "admin"}, "super.users has 'admin'.*expected for example User:admin"),
        ({"super_users": "User:a;User:"}, "super.users has 'User:'"),
        ({"authorizer_mode": "observe"}, "authorizer.mode='observe' is not allowed; expected enforce, report"),
        ({"allow_everyone_if_no_acl_found": "yes"}, "expected true or false"),
    ],
)
def test_what_is_rejected(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        load(**settings)
