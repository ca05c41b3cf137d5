"""`strandline security status`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from strandline.cli.acl.access import read_acls
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.security.listeners import ListenerSeen, SecuritySettings, read_listeners
from strandline.cli.user.credentials import read_users
from strandline.security.acl.access_rule import AclFilter

_USER: Final = "User:"
_OF_NO_USER: Final = ("User:*", "User:ANONYMOUS")
_DAY_S: Final = 86_400


def status(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show listeners with their certificates, users that may do nothing, and ACLs of users that do not exist.

    Users are those of SCRAM. Principals of certificates, with an = in their name, are not looked for among them.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    listeners, settings = read_listeners(cluster, cluster.admin())
    idle, unknown = _users_and_acls(cluster, settings)
    if as_json:
        for each in listeners:
            output.json_line(_as_json(each))
        output.json_line(
            {
                "authorizer": settings.has_authorizer,
                "super_users": sorted(settings.super_users),
                "users_without_acls": idle,
                "acls_without_user": unknown,
            }
        )
        return
    columns = ["broker", "listener", "protocol", "address", "certificate", "ends"]
    output.table(columns, [_row(each, time.time()) for each in listeners])
    output.line("")
    if not settings.has_authorizer:
        output.line("no authorizer: every client may do everything (authorizer.class.name)")
        return
    output.line(f"super users         {', '.join(sorted(settings.super_users)) or 'none'}")
    output.line(f"users without ACLs  {', '.join(idle) or 'none'}")
    output.line(f"ACLs without user   {', '.join(unknown) or 'none'}")


def _users_and_acls(cluster: Cluster, settings: SecuritySettings) -> tuple[list[str], list[str]]:
    """Return the users that no ACL names, and the principals of ACLs that are no users. Super users need no ACL."""
    if not settings.has_authorizer:
        return [], []
    users = {f"{_USER}{name}" for name in read_users(cluster)}
    principals = {acl.principal for acl in read_acls(cluster, AclFilter())}
    idle = sorted(each.removeprefix(_USER) for each in users - principals - settings.super_users)
    known = users | settings.super_users | set(_OF_NO_USER)
    return idle, sorted(each for each in principals - known if each.startswith(_USER) and "=" not in each)


def _row(each: ListenerSeen, now_s: float) -> list[object]:
    certificate = each.certificate
    if certificate is None:
        shown, ends = ("not seen from here", "-") if each.protocol in ("SSL", "SASL_SSL") else ("-", "-")
    else:
        left = int((certificate.ends_s - now_s) // _DAY_S)
        words = "expired" if certificate.ends_s < now_s else f"{left} days left"
        shown, ends = certificate.subject, f"{_day(certificate.ends_s)} ({words})"
    return [each.broker, each.name, each.protocol, each.address, shown, ends]


def _as_json(each: ListenerSeen) -> dict[str, object]:
    certificate = each.certificate
    return {
        "broker": each.broker,
        "listener": each.name,
        "protocol": each.protocol,
        "address": each.address,
        "certificate": None if certificate is None else certificate.subject,
        "certificate_ends_ms": None if certificate is None else certificate.ends_s * 1000,
    }


def _day(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")
