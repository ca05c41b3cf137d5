"""The rights of callers, decided by the cluster's own ACLs.

The service reads them as a client, so its own user needs DESCRIBE and DESCRIBE_CONFIGS on the cluster. A decision uses
rules that are a few seconds old at most. While the cluster cannot be reached the last rules are kept for a minute;
then every caller is denied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple
from uuid import UUID

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.codec.messages.describe_acls_request import DescribeAclsRequest
from strandline.codec.messages.describe_acls_response import DescribeAclsResponse
from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.describe_cluster_response import DescribeClusterResponse
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.codec.messages.describe_configs_response import DescribeConfigsResponse
from strandline.errors import Disconnected, ErrorCode, InvalidConfig, RequestError, TimedOut, UnsupportedVersion, named
from strandline.security.acl.access_rule import Acl, acls_of, record_of
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.principal import Principal, parse_principal

log = logging.getLogger("strandline.http")

FRESH_S_MAX: Final = 3.0
"""The age of rules that decide without another look at the cluster."""
KEPT_S_MAX: Final = 60.0
"""The age of rules that still decide while the cluster cannot be reached."""
WAIT_S_MAX: Final = 2.0
"""The time that a request waits for newer rules if there are old ones."""
SHARE_OF_TIME: Final = 10
"""Many rules are read less often, so that reading them takes at most a tenth of the time."""
_RETRY_S: Final = 1.0
_BROKER: Final = 4
"""Kafka's number for the settings of a broker."""


class RulesRejected(InvalidConfig):
    """The cluster does not show its rules to the user of the service."""


class ReadRules(NamedTuple):
    """All that decides. Without an authorizer, every authenticated client may do everything."""

    has_authorizer: bool
    acls: frozenset[Acl] = frozenset()
    super_users: frozenset[Principal] = frozenset()
    allows_everyone: bool = False
    reports_only: bool = False


class ClusterRights:
    """The newest rules that could be read. Used by one event loop; `executor` runs what blocks."""

    def __init__(self, settings: ClientSettings, executor: Executor, *, clock: Callable[[], float]) -> None:
        self._client = ClusterClient(settings)
        self._executor = executor
        self._clock = clock
        self._rules: ReadRules | None = None
        self._authorizer: Authorizer | None = None
        self._read_at = 0.0
        self._fresh_s = FRESH_S_MAX
        self._retry_at = 0.0
        self._failure = "the cluster's access rules have not been read yet"
        self._reading: asyncio.Task[None] | None = None

    async def current(self) -> Authorizer | str | None:
        """Return the authorizer in force; None if the cluster has none; a sentence while its rules are unknown."""
        now = self._clock()
        is_known = self._rules is not None
        if not is_known or now - self._read_at > self._fresh_s:
            if self._reading is None and now >= self._retry_at:
                self._reading = asyncio.get_running_loop().create_task(self._read())
            if self._reading is not None:
                await asyncio.wait([self._reading], timeout=WAIT_S_MAX if is_known else None)
        if self._rules is None or self._clock() - self._read_at > max(KEPT_S_MAX, self._fresh_s):
            return f"rights cannot be decided: {self._failure}"
        return self._authorizer

    async def check(self) -> None:
        """Raise InvalidConfig if the cluster refuses to show its rules. A cluster that is down may come back."""
        try:
            await self._read_once()
        except (ClientFailed, Disconnected, TimedOut, UnsupportedVersion) as error:
            self._note_failure(error)

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return what the rules in force say; `current` must have known them."""
        authorizer = self._authorizer
        assert self._rules is not None, "there are rules"
        if authorizer is None:
            return True
        allowed = authorizer.rights_of(principal, host).allows(operation, resource_type, name)
        if not allowed and authorizer.reports_only:
            log.info("would deny %s %s %s %s from %s", principal, operation.name, resource_type.name, name, host)
            return True
        return allowed

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._executor.submit(self._client.close)

    async def _read(self) -> None:
        try:
            await self._read_once()
        except (ClientFailed, Disconnected, TimedOut, UnsupportedVersion, InvalidConfig, RequestError) as error:
            self._note_failure(error)
        finally:
            self._reading = None

    def _note_failure(self, error: Exception) -> None:
        self._retry_at = self._clock() + _RETRY_S
        if str(error) != self._failure:
            log.warning("the cluster's access rules cannot be read: %s", error)
        self._failure = str(error)

    async def _read_once(self) -> None:
        began = self._clock()
        loop = asyncio.get_running_loop()
        rules, authorizer = await loop.run_in_executor(self._executor, self._ask, self._rules, self._authorizer)
        self._rules, self._authorizer = rules, authorizer
        # The age counts from the question: a rule that changed while the answer came is not in it.
        self._read_at = began
        self._fresh_s = max(FRESH_S_MAX, SHARE_OF_TIME * (self._clock() - began))
        self._retry_at = 0.0
        self._failure = ""

    def _ask(self, before: ReadRules | None, authorizer: Authorizer | None) -> tuple[ReadRules, Authorizer | None]:
        rules = self._ask_rules()
        return rules, authorizer if rules == before else _authorizer_of(rules)

    def _ask_rules(self) -> ReadRules:
        every = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        answer = self._client.ask_any(every, DescribeAclsResponse)
        code = named(answer.error_code)
        if code == ErrorCode.SECURITY_DISABLED:
            return ReadRules(False)
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise RulesRejected(
                "the user of the service may not read the cluster's ACLs; expected `strandline acl grant --user NAME "
                "--cluster --operation describe` and the same for describe_configs, or a super user"
            )
        if code:
            raise Disconnected(f"DescribeAcls was answered with {code.name}")
        acls = frozenset(acls_of(answer))
        settings = self._ask_settings()
        names = [name.strip() for name in settings.get("super.users", "").split(";")]
        return ReadRules(
            True,
            acls,
            frozenset(parse_principal(name) for name in names if name),
            settings.get("allow.everyone.if.no.acl.found", "false").lower() == "true",
            settings.get("authorizer.mode") == "report",
        )

    def _ask_settings(self) -> dict[str, str]:
        """Return the settings of the authorizer, which are the same on every broker."""
        cluster = self._client.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
        if not cluster.brokers:
            raise Disconnected("the cluster has no broker")
        broker = cluster.brokers[0]
        keys = ["super.users", "allow.everyone.if.no.acl.found", "authorizer.mode"]
        wanted = DescribeConfigsResource(_BROKER, str(broker.broker_id), keys)
        # Our own broker answers for itself alone, as Kafka's does.
        answer = self._client.ask_at(
            (broker.host, broker.port), DescribeConfigsRequest([wanted]), DescribeConfigsResponse
        )
        result = answer.results[0]
        if result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise RulesRejected(
                "the user of the service may not read super.users; expected `strandline acl grant --user NAME "
                "--cluster --operation describe_configs`, or a super user"
            )
        if result.error_code:
            raise Disconnected(f"DescribeConfigs was answered with {named(result.error_code).name}")
        return {each.name: each.value or "" for each in result.configs}


def _authorizer_of(rules: ReadRules) -> Authorizer | None:
    if not rules.has_authorizer:
        return None
    made = Authorizer(super_users=rules.super_users, allows_everyone=rules.allows_everyone)
    made.reports_only = rules.reports_only
    made.load(record_of(acl, UUID(int=number)) for number, acl in enumerate(rules.acls))
    return made
