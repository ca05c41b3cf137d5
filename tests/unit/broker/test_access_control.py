"""The authorizer of a node follows the access rules of its image."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any
from uuid import UUID

from strandline.broker.access_control import AccessRulesLoader
from strandline.broker.main import node_on, stop
from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.begin_transaction_record import BeginTransactionRecord
from strandline.codec.messages.end_transaction_record import EndTransactionRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.config.node_config import BrokerConfig
from strandline.config.security.authorizer_settings import STANDARD_AUTHORIZER
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.principal import Principal

ALICE = Principal("User", "alice")


def rule(name: str, number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=str(ALICE),
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


class Followed:
    """An image, and an authorizer that is notified as the metadata loader does it."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.authorizer = Authorizer(super_users=frozenset(), allows_everyone=False)
        self.loader = AccessRulesLoader(self.authorizer, lambda: self.image)
        self.loader.on_metadata([])

    def apply(self, *records: Any) -> None:
        for record in records:
            self.image.apply(record)
        self.loader.on_metadata(list(records))

    def may_read(self, name: str) -> bool:
        return self.authorizer.rights_of(ALICE, "::1").allows(Operation.READ, ResourceType.TOPIC, name)


def test_rules_are_added_and_removed() -> None:
    followed = Followed()
    followed.apply(rule("a", 1), rule("b", 2))
    assert followed.may_read("a")
    assert followed.may_read("b")
    version = followed.authorizer.version
    followed.apply(RemoveAccessControlEntryRecord(id=UUID(int=1)))
    assert not followed.may_read("a")
    assert followed.may_read("b")
    assert followed.authorizer.version == version + 1
    followed.apply()
    assert followed.authorizer.version == version + 1, "no record changed a rule"


def test_rules_of_a_transaction_count_when_it_ends() -> None:
    followed = Followed()
    followed.apply(BeginTransactionRecord(), rule("a", 1))
    assert not followed.may_read("a")
    followed.apply(rule("b", 2), EndTransactionRecord())
    assert followed.may_read("a")
    assert followed.may_read("b")


def test_another_image_has_other_rules() -> None:
    followed = Followed()
    followed.apply(rule("a", 1))
    followed.image = ClusterImage()
    followed.image.apply(rule("b", 1))
    followed.loader.on_metadata([])
    assert not followed.may_read("a")
    assert followed.may_read("b")


def test_a_node_decides_by_the_rules_of_its_log(tmp_path: Path) -> None:
    config = dataclasses.replace(
        BrokerConfig.load("listeners=PLAINTEXT://127.0.0.1:0"),
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:root",
    )

    async def run(*records: Any) -> list[bool]:
        node = node_on(asyncio.get_running_loop(), tmp_path, config)
        assert node.authorizer is not None
        node.start()
        written = asyncio.Event()
        node.metadata.write(list(records), lambda error: written.set())
        await written.wait()
        rights = node.authorizer.rights_of(ALICE, "127.0.0.1")
        found = [rights.allows(Operation.READ, ResourceType.TOPIC, name) for name in ("a", "b")]
        assert node.authorizer.rights_of(Principal("User", "root"), "::1").is_super
        await stop(node)
        return found

    assert asyncio.run(run(rule("a", 1))) == [True, False]
    assert asyncio.run(run(rule("b", 2))) == [True, True]


def test_without_settings_a_node_has_no_authorizer(tmp_path: Path) -> None:
    async def run() -> None:
        node = node_on(asyncio.get_running_loop(), tmp_path, BrokerConfig.load("listeners=PLAINTEXT://127.0.0.1:0"))
        assert node.authorizer is None
        node.start()
        await stop(node)

    asyncio.run(run())
