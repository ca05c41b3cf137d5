"""`ssl.principal.mapping.rules`: the first rule that matches the whole subject gives the name."""

from __future__ import annotations

import pytest

from strandline.errors import InvalidConfig
from strandline.security.tls.principal_mapping import PrincipalMapping

SUBJECT = "CN=kafka.example.com,OU=Billing,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", SUBJECT),
        ("", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka.example.com"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2@$1/L", "billing@kafka.example.com"),
        ("RULE:CN=(.*?),.*/$1/U", "KAFKA.EXAMPLE.COM"),
        ("RULE:CN=nobody/never/,RULE:^CN=(.*?),.*$/$1/,DEFAULT", "kafka.example.com"),
        ("RULE:CN=nobody/never/ , DEFAULT", SUBJECT),
        ("RULE:CN=nobody/never/", None),
        ("RULE:CN=kafka/x/", None),
        ("RULE:CN=(.*?),.*/a\\/$1/", "a/kafka.example.com"),
        ("RULE:CN=(.*?),.*/$1-$2/", "kafka.example.com-$2"),
        ("RULE:CN=(.*?),.*/$12/", "kafka.example.com2"),
        ("RULE:CN=(.*?),.*/\\$1/", "$1"),
        ("RULE:CN=(kafka)?(nothing)?.*/<$2>/", "<>"),
        # Java replaces the empty match at the end, too.
        ("RULE:.*/x/", "xx"),
        ("RULE:CN=.*,O=Example,C=DE/a,b/,DEFAULT", "a,b"),
        ("DEFAULT,", SUBJECT),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, expected: str | None) -> None:
    assert PrincipalMapping(rules).name_of(SUBJECT) == expected


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("NONSENSE", "has 'NONSENSE'; expected DEFAULT or RULE"),
        ("RULE:a/b", "expected DEFAULT or RULE"),
        ("RULE:a/b/X", "expected DEFAULT or RULE"),
        ("DEFAULT RULE:a/b/", "expected DEFAULT or RULE"),
        ("RULE:(a/b/", "has the pattern '(a', which is not understood"),
        ("RULE:\\p{Lu}/b/", "which is not understood"),
    ],
)
def test_a_rule_that_is_none_is_refused(rules: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        PrincipalMapping(rules)
    assert why in str(refused.value)
    assert "ssl.principal.mapping.rules" in str(refused.value)
