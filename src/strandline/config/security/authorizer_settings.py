"""The settings of the authorizer, and the checks of their values."""

from __future__ import annotations

import dataclasses
from typing import Final

from strandline.config.settings import boolean, one_of, text
from strandline.errors import InvalidConfig

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ENFORCE: Final = "enforce"
REPORT: Final = "report"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuthorizerSettings:
    """The table of authorizer settings. Each attribute is the setting of that name with underscores for dots."""

    authorizer_class_name: str = text(
        "authorizer.class.name",
        "",
        None,
        f"`{STANDARD_AUTHORIZER}` has the node decide by the ACLs of the cluster. Empty: every client may do "
        "everything. No other class can be loaded here.",
    )
    super_users: str = text(
        "super.users",
        "",
        None,
        "Principals that may do everything, separated by `;`, as `User:admin;User:CN=broker,O=example`. The brokers of "
        "a cluster should be among them.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether a resource that no ACL covers is open to every client.",
    )
    authorizer_mode: str = text(
        "authorizer.mode",
        ENFORCE,
        one_of(ENFORCE, REPORT),
        "Strandline's own. `report` allows what the ACLs deny and logs it: `strandline acl suggest` reads that log and "
        "writes the ACLs that are missing.",
    )

    def super_user_names(self) -> tuple[str, ...]:
        """Return the principals of `super.users`, as text."""
        return tuple(name for name in map(str.strip, self.super_users.split(";")) if name)


def check_authorizer(settings: AuthorizerSettings) -> None:
    """Raise InvalidConfig for an authorizer that this node does not have, and for a super user that is no principal."""
    name = settings.authorizer_class_name
    if name and name != STANDARD_AUTHORIZER:
        raise InvalidConfig(
            f"authorizer.class.name={name!r} is not allowed: Java classes cannot be loaded here, so nothing would be "
            f"checked. Expected: {STANDARD_AUTHORIZER}, or empty"
        )
    for principal in settings.super_user_names():
        kind, _, rest = principal.partition(":")
        if not kind or not rest:
            raise InvalidConfig(
                f"super.users has {principal!r}, which is no principal; expected for example User:admin;User:alice"
            )
