"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed
from strandline.cli.contract.kinds import Access, Action, ContractDefaults, ContractItem, ContractStep, Detail, Turn
from strandline.cli.quota.access import change_quotas, open_quotas, read_quotas, wait_until_known
from strandline.cli.quota.words import QuotaEntity, entity_of, parse_quota, quota_words
from strandline.config.quota_keys import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from strandline.documents.fields import Fields

FIELDS: Final = {
    "produce": PRODUCER_BYTE_RATE,
    "fetch": CONSUMER_BYTE_RATE,
    "requests": REQUEST_PERCENTAGE,
    "changes": CONTROLLER_MUTATION_RATE,
    "connections": CONNECTION_CREATION_RATE,
}
_ENTITIES: Final = {USER: "user", CLIENT_ID: "client", IP: "address"}


@dataclass(frozen=True)
class QuotaContract:
    """The quotas that an entity should have; none takes back what it has."""

    entity: QuotaEntity
    quotas: Mapping[str, float]


@dataclass(frozen=True)
class QuotaKind:
    field: str = "quotas"

    def parse(self, fields: Fields, defaults: ContractDefaults) -> ContractItem:
        contract = parse_quotas(fields)
        return ContractItem(f"quota of {contract.entity}", contract, fields.path)

    def steps(self, access: Access, items: Sequence[ContractItem]) -> list[ContractStep]:
        if not items:
            return []
        with open_quotas(access.cluster) as conversation:
            current = read_quotas(conversation, None, exactly=False)
        found = []
        for item in items:
            wanted: QuotaContract = item.value
            before = current.get(wanted.entity, {})
            if before != wanted.quotas:
                found.append(_step(access, wanted, before))
        return found

    def export(self, access: Access, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        if names:
            return {}
        try:
            with open_quotas(access.cluster) as conversation:
                current = read_quotas(conversation, None, exactly=False)
        except CommandFailed as failure:
            access.notes.append(f"quotas are not exported: {failure.message}")
            return {}
        return {"quotas": [export_quotas(entity, quotas) for entity, quotas in current.items()]}

    def unmanaged(self, access: Access, items: Sequence[ContractItem]) -> list[str]:
        named = {item.value.entity for item in items}
        try:
            with open_quotas(access.cluster) as conversation:
                current = read_quotas(conversation, None, exactly=False)
        except CommandFailed:
            return []
        return [f"quotas of {entity}" for entity in current if entity not in named]


def parse_quotas(fields: Fields) -> QuotaContract:
    """Return the quotas of an entry. DocumentFailed says what is wrong with a field."""
    names = {kind: fields.text(word) for kind, word in _ENTITIES.items()}
    default = fields.texts("default")
    for word in default:
        if word not in _ENTITIES.values():
            raise fields.failure("default", f"default has some of {', '.join(_ENTITIES.values())}, not {word!r}")
    try:
        entity = entity_of(
            names[USER], "user" in default, names[CLIENT_ID], "client" in default, names[IP], "address" in default
        )
        if entity is None:
            raise fields.failure("user", "a quota is for a user, a client or an address; or default: user")
        entity = QuotaEntity(tuple(sorted(entity.parts, key=lambda part: part[0], reverse=True)))
        keys = IP_KEYS if any(kind == IP for kind, _ in entity.parts) else CLIENT_KEYS
        quotas = {}
        for word, key in FIELDS.items():
            value = fields.text(word)
            if value is not None:
                if key not in keys:
                    raise fields.failure(word, f"{word} is no quota of {entity}")
                quotas[key] = parse_quota(key, value)
    except CommandFailed as failure:
        raise fields.failure("user", failure.message) from None
    fields.done()
    return QuotaContract(entity, quotas)


def export_quotas(entity: QuotaEntity, quotas: Mapping[str, float]) -> dict[str, Any]:
    """Return the entry of an entity that plans to nothing."""
    entry: dict[str, Any] = {}
    for kind, name in entity.parts:
        if name is None:
            entry.setdefault("default", []).append(_ENTITIES[kind])
        else:
            entry[_ENTITIES[kind]] = name
    words = {key: word for word, key in FIELDS.items()}
    for key, value in sorted(quotas.items()):
        entry[words[key]] = _exact(key, value)
    return entry


def _exact(key: str, value: float) -> str:
    """Return a text that `parse_quota` reads back to the same number."""
    number = f"{value:.0f}" if value == int(value) else f"{value!r}"
    if key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
        for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
            if value % factor == 0:
                return f"{value / factor:.0f} {unit}/s"
        return f"{number} B/s"
    return f"{number}%" if key == REQUEST_PERCENTAGE else f"{number}/s"


def _step(access: Access, wanted: QuotaContract, before: Mapping[str, float]) -> ContractStep:
    changes: dict[str, float | None] = {key: None for key in before if key not in wanted.quotas}
    changes |= {key: value for key, value in wanted.quotas.items() if before.get(key) != value}
    words = {key: word for word, key in FIELDS.items()}
    details = []
    for key, value in sorted(changes.items()):
        was = quota_words(key, before[key]) if key in before else "no limit"
        details.append(Detail(words[key], was, "no limit" if value is None else quota_words(key, value)))

    def run() -> None:
        with open_quotas(access.cluster) as conversation:
            change_quotas(conversation, wanted.entity, changes, dry_run=False)
            wait_until_known(conversation, wanted.entity, dict(wanted.quotas), access.cluster.timeout_s)

    action = Action.CREATE if not before else Action.CHANGE if wanted.quotas else Action.DELETE
    return ContractStep("quotas", action, f"quotas of {wanted.entity}", Turn.QUOTA, run, tuple(details))
