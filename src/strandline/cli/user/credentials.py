"""The SCRAM credentials of a cluster, read and written through its admin API."""

from __future__ import annotations

from typing import Any, Final

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.failures import NotFound, did_you_mean, from_kafka_error

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_DEFAULT: Final = "SCRAM-SHA-512"
ITERATIONS_DEFAULT: Final = 8192

Users = dict[str, dict[str, int]]
"""By user: the iterations of each mechanism."""


def read_users(cluster: Cluster) -> Users:
    """Return all users that have credentials, in the order of their names."""
    admin = cluster.admin()
    with cluster.errors("cannot list users"):
        described = admin.describe_user_scram_credentials(request_timeout=cluster.timeout_s).result()
    return {
        name: {_name_of(each.mechanism): each.iterations for each in described[name].scram_credential_infos}
        for name in sorted(described)
    }


def known_user(users: Users, name: str) -> dict[str, int]:
    """Return the mechanisms of a user; NotFound if there is none."""
    if name not in users:
        meant = did_you_mean(name, users)
        look = f"{meant}? Or see" if meant else "see"
        raise NotFound(f"there is no user {name!r}", hint=f"{look} `strandline user list`")
    return users[name]


def write_credential(cluster: Cluster, name: str, mechanism: str, iterations: int, password: str) -> None:
    """Write one credential. The client computes the salted password, so that the password is not sent."""
    api = admin_api()
    number = getattr(api.ScramMechanism, mechanism.replace("-", "_"))
    credential = api.ScramCredentialInfo(number, iterations)
    _alter(
        cluster, api.UserScramCredentialUpsertion(name, credential, password.encode()), f"cannot write user {name!r}"
    )


def delete_credential(cluster: Cluster, name: str, mechanism: str) -> None:
    api = admin_api()
    number = getattr(api.ScramMechanism, mechanism.replace("-", "_"))
    _alter(cluster, api.UserScramCredentialDeletion(name, number), f"cannot delete user {name!r}")


def _alter(cluster: Cluster, alteration: Any, doing: str) -> None:
    # One at a time: a request that names a user twice is rejected, also for two mechanisms.
    admin = cluster.admin()
    with cluster.errors(doing):
        (future,) = admin.alter_user_scram_credentials([alteration], request_timeout=cluster.timeout_s).values()
    try:
        future.result()
    except kafka_api().KafkaException as error:
        raise from_kafka_error(error.args[0], bootstrap=cluster.bootstrap, doing=doing) from None


def _name_of(mechanism: Any) -> str:
    return str(mechanism.name).replace("_", "-")
