"""The settings of a registry as a service: how it is called, and whom it trusts as a primary."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.authority import Authority

from strandline.errors import InvalidConfig
from strandline.schemas.registry import RegistrySettings
from strandline.services.registry.registry_settings import RegistryServiceSettings

PLAIN = {"listeners": "http://127.0.0.1:8081", "bootstrap.servers": "127.0.0.1:9092"}


def settings(**more: str) -> RegistryServiceSettings:
    given = PLAIN | {name.replace("_", "."): value for name, value in more.items()}
    return RegistryServiceSettings.of(given, RegistrySettings("127.0.0.1:9092"))


def test_a_registry_is_called_by_its_host_unless_it_listens_everywhere() -> None:
    assert settings().host_name == "127.0.0.1"
    named = settings(host_name="Registry-1.example.com")
    assert named.host_name == "Registry-1.example.com"
    assert "registry-1.example.com" in named.door.hosts, "other registries call it so"


def test_a_registry_that_listens_everywhere_needs_a_name(tmp_path: Path) -> None:
    store = Authority(tmp_path).issue("registry")
    given = {
        "listeners": "https://0.0.0.0:8081",
        "listeners_https_ssl_keystore_location": str(store),
        "http_authentication": "basic",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "registry",
        "sasl_password": "secret",
    }
    with pytest.raises(InvalidConfig, match=r"host\.name"):
        settings(**given)
    assert settings(**given, host_name="localhost").host_name == "localhost"


def test_a_primary_is_checked_by_name_and_by_the_authority_of_the_brokers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in ("ssl_truststore_location", "ssl_ca_location", "listeners_https_ssl_truststore_location"):
        context = settings(**{name: str(authority.trusted)}).primary_context()
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
        assert [dict(each[0] for each in found["subject"])["commonName"] for found in context.get_ca_certs()] == [
            "authority"
        ]
