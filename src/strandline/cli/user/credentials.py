"""The SCRAM credentials of a cluster, read and written through its admin API."""

from __future__ import annotations

from typing import Any, Final

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.conversation import converse, error_name, not_spoken
from strandline.cli.common.failures import CommandFailed, NotFound, did_you_mean, from_kafka_error
from strandline.codec.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from strandline.codec.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_DEFAULT: Final = "SCRAM-SHA-512"
ITERATIONS_DEFAULT: Final = 8192

Users = dict[str, dict[str, int]]
"""By user: the iterations of each mechanism."""


def read_users(cluster: Cluster) -> Users:
    """Return all users that have credentials, in the order of their names."""
    # The request is our own, because librdkafka 2.16 crashes the process when the answer is a refusal.
    conversation = converse(cluster)
    if conversation is None:
        raise not_spoken("users cannot be listed")
    with conversation:
        answer = conversation.ask(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    if answer is None:
        raise CommandFailed("cannot list users: this cluster does not offer DescribeUserScramCredentials")
    if answer.error_code:
        reason = f" ({answer.error_message})" if answer.error_message else ""
        raise CommandFailed(f"cannot list users: {error_name(answer.error_code)}{reason}")
    return {
        each.user: {_name_of(info.mechanism): info.iterations for info in each.credential_infos}
        for each in sorted(answer.results, key=lambda each: each.user)
        if not each.error_code
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


def _name_of(mechanism: int) -> str:
    """Return the name of a mechanism that Kafka numbers from 1 on."""
    return MECHANISMS[mechanism - 1] if 1 <= mechanism <= len(MECHANISMS) else f"mechanism {mechanism}"
