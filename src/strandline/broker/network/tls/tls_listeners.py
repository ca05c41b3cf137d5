"""The TLS of a node: one set of contexts for each listener of TLS, and for the listeners of other nodes that it uses.

Contexts are replaced whole when a file of theirs changes or a dynamic setting does. The files are looked at every few
seconds, in a thread. Connections that exist go on with what they have. A new certificate that cannot be used is
reported once, and the old one stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.network.connection import Connection
from strandline.broker.network.transport import (
    Accept,
    AcceptedTls,
    Listening,
    Network,
    OutgoingReceiver,
    OutgoingTls,
    OutgoingTransport,
    Receiver,
)
from strandline.codec.messages.alter_configs_request import AlterConfigsRequest
from strandline.codec.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from strandline.errors import ErrorCode, InvalidConfig, MalformedMessage
from strandline.handlers.support.refusals import refusal
from strandline.observability.log_lines import fields
from strandline.quorum.controller.config_changes import AlterOperation
from strandline.quorum.image.cluster_image import RESOURCE_BROKER
from strandline.security.principal import USER, Principal, Session
from strandline.security.tls.certificates import read_certificate
from strandline.security.tls.contexts import TlsContexts, make_contexts, why_not_replaceable, why_not_trusted
from strandline.security.tls.principal_mapping import SETTING, PrincipalMapping
from strandline.security.tls.stores import store_files

if TYPE_CHECKING:
    import ssl

    from strandline.broker.network.dispatch import Forward, RequestContext
    from strandline.codec.message import Message
    from strandline.config.node_config import BrokerConfig
    from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.broker")

LOOK_TICKS: Final = 3
"""Seconds between two looks at the files."""
WARN_DAYS: Final = 30
"""How long before its end a certificate is warned of, once a day."""
_DAY_S: Final = 24 * 60 * 60

Files = dict[str, tuple[int, int, int]]


class ListenerTls:
    """The contexts of one listener, and the principals of its clients."""

    def __init__(
        self, config: BrokerConfig, name: str, *, now_s: float, is_server: bool, is_between_nodes: bool
    ) -> None:
        """Raise InvalidConfig, which names the listener and the setting, if no context can be made."""
        self.name = name
        self._is_server = is_server
        self.is_between_nodes = is_between_nodes
        self._is_sasl = config.security_protocol(name).startswith("SASL")
        self._config = config
        self._files: Files = {}
        self._settings = self._all_texts(config)
        self._rejected: object = None
        self.on_login: Callable[[str, str, str], object] | None = None
        """Called with host, principal and, of a connection that failed, the reason."""
        self._warned_s = 0.0
        try:
            self._mapping = PrincipalMapping(self._text(config, SETTING) or "")
            self._files = store_files(partial(self._text, config))
            self.contexts = make_contexts(partial(self._text, config), now_s=now_s, is_server=is_server)
        except InvalidConfig as error:
            raise InvalidConfig(f"listener {name}: {error}") from error
        if why := self._why_nodes_disagree(self.contexts, self.contexts):
            raise InvalidConfig(
                f"listener {name}: nodes use it among themselves, and they would reject each other: {why}; expected "
                "ssl.truststore.location with the authority of ssl.keystore.location, of a certificate for both sides"
            )

    def _text(self, config: BrokerConfig, key: str) -> str | None:
        return config.listener_text(self.name, key)

    def _all_texts(self, config: BrokerConfig) -> tuple[str | None, ...]:
        return tuple(self._text(config, key) for key in _STORE_SETTINGS)

    def _why_nodes_disagree(self, before: TlsContexts, after: TlsContexts) -> str | None:
        """Return why nodes with the one contexts and nodes with the other would reject each other; None if not."""
        if not (self.is_between_nodes and self._is_server and after.has_trust_store):
            return None
        return why_not_trusted(before.server, after.client) or why_not_trusted(after.server, before.client)

    # What transports use

    def server_context(self) -> ssl.SSLContext:
        return self.contexts.server

    def client_context(self) -> ssl.SSLContext:
        return self.contexts.client

    def on_secured(self, receiver: Receiver, certificate: bytes | None) -> None:
        """Give the connection the principal of its certificate. With SASL the certificate was only checked."""
        assert isinstance(receiver, Connection)
        if certificate is None or self._is_sasl:
            return
        try:
            subject = read_certificate(certificate).subject
        except MalformedMessage as error:
            self.on_failed(receiver, f"its certificate cannot be read: {error}", "protocol")
            return
        name = self._mapping.name_of(subject)
        if name is None:
            self.on_failed(receiver, f"no rule of {SETTING} matches {subject}", "protocol")
        else:
            receiver.session = Session(Principal(USER, name))
            if self.on_login is not None:
                self.on_login(receiver.transport.peer_host, str(receiver.session.principal), "")

    def on_failed(self, receiver: Receiver, reason: str, kind: str) -> None:
        assert isinstance(receiver, Connection)
        if self.on_login is not None:
            self.on_login(receiver.transport.peer_host, "", reason)
        receiver.limits.refuse(receiver, reason, kind=kind)

    # Other certificates

    def configure(self, config: BrokerConfig) -> bool:
        """Take the settings that changed; return whether contexts are to be made again."""
        self._config = config
        return self.is_changed_by(config)

    def is_changed_by(self, config: BrokerConfig) -> bool:
        """Return whether other stores are to be used with these settings."""
        return self._all_texts(config) != self._settings

    def look(self) -> Files:
        """Return the state of the files; for threads."""
        return store_files(partial(self._text, self._config))

    def check(self, config: BrokerConfig, now_s: float) -> None:
        """Raise InvalidConfig if the stores of these settings may not take the place of the old ones; for threads."""
        self._usable(config, now_s)

    def is_changed(self, files: Files) -> bool:
        return files != self._files and files != self._rejected

    def made_again(self, now_s: float) -> tuple[TlsContexts, Files, tuple[str | None, ...]]:
        """Return new contexts that may take the place of the old ones; for threads. InvalidConfig if they may not."""
        config = self._config
        files = self.look()
        return self._usable(config, now_s), files, self._all_texts(config)

    def _usable(self, config: BrokerConfig, now_s: float) -> TlsContexts:
        before = self.contexts
        after = make_contexts(partial(self._text, config), now_s=now_s, is_server=self._is_server)
        why = why_not_replaceable(
            before,
            after,
            may_change_subject=_is_true(self._text(config, "ssl.allow.dn.changes")),
            may_drop_names=_is_true(self._text(config, "ssl.allow.san.changes")),
        )
        why = why or self._why_nodes_disagree(before, after)
        if why:
            raise InvalidConfig(f"the new certificate is not used: {why}")
        return after

    def replace(
        self, made: tuple[TlsContexts, Files, tuple[str | None, ...]] | None, error: BaseException | None
    ) -> None:
        """Use the contexts that were made, or keep the old ones and say why."""
        if made is None:
            try:
                self._rejected = self.look()
            except OSError:
                self._rejected = None
            self._settings = self._all_texts(self._config)
            facts = fields(listener=self.name, reason=str(error))
            log.error("listener %s keeps its certificate: %s", self.name, error, extra=facts)
            return
        self.contexts, self._files, self._settings = made
        self._rejected = None
        self._warned_s = 0.0
        log.info("listener %s has a new certificate or trust store", self.name, extra=fields(listener=self.name))

    def warn_if_ending(self, now_s: float) -> None:
        """Say once a day that the certificate ends soon."""
        certificate = self.contexts.certificate
        if certificate is None or now_s - self._warned_s < _DAY_S:
            return
        left_s = certificate.ends_s - now_s
        if left_s < WARN_DAYS * _DAY_S:
            self._warned_s = now_s
            how = "has expired" if left_s <= 0 else f"expires in {left_s / _DAY_S:.0f} days"
            log.warning(
                "the certificate of listener %s (%s) %s: put a new one in its place, no restart is needed",
                self.name,
                certificate.subject,
                how,
                extra=fields(listener=self.name, expires_s=certificate.ends_s),
            )


_STORE_SETTINGS: Final = tuple(
    f"ssl.{name}"
    for name in (
        *("keystore.location", "keystore.key", "keystore.certificate.chain", "keystore.type", "keystore.password"),
        *("key.password", "truststore.location", "truststore.certificates", "truststore.type", "truststore.password"),
    )
)


class NodeTls:
    """Every `ListenerTls` of a node, kept up to date."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self._runtime = runtime
        self._config = config
        self._ticks = 0
        self._is_looking = False
        self.by_listener = {
            name: ListenerTls(
                config,
                name,
                now_s=runtime.now_ms() / 1000,
                is_server=is_server,
                is_between_nodes=name in config.listeners_between_nodes(),
            )
            for name, is_server in config.tls_listeners().items()
        }

    def configure(self, config: BrokerConfig) -> None:
        """Obey settings that changed."""
        self._config = config
        for each in self.by_listener.values():
            if each.configure(config):
                self._make_again(each)

    def checked(self, forward: Forward, node_id: int) -> Forward:
        """Return `forward` with a check before it: a change to stores that this broker cannot use is rejected.

        Only this broker can read its files, so the controller cannot check them.
        """

        def check(context: RequestContext, request: Message, content: bytes) -> None:
            changed = self._changed_by(request, node_id)
            if changed is None:
                forward(context, request, content)
                return

            def on_checked(_: object, error: BaseException | None) -> None:
                if error is None:
                    forward(context, request, content)
                else:
                    answer = refusal(request, context.api_version, ErrorCode.INVALID_REQUEST, str(error))
                    context.reply(answer)

            self._runtime.in_thread(partial(self._check, changed, self._runtime.now_ms() / 1000), on_checked)

        return check

    def _changed_by(self, request: Message, node_id: int) -> BrokerConfig | None:
        """Return the settings after a request that changes stores of this broker, and nothing else; None otherwise."""
        if not isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest) or len(request.resources) != 1:
            return None
        is_whole = isinstance(request, AlterConfigsRequest)
        resource: Any = request.resources[0]
        if (resource.resource_type, resource.resource_name) != (RESOURCE_BROKER, str(node_id)):
            return None
        settings = {} if is_whole else dict(self._config.dynamic_broker)
        for each in resource.configs:
            settings.pop(each.name, None)
            if each.value is not None and (is_whole or each.config_operation == AlterOperation.SET):
                settings[each.name] = each.value
        try:
            config = self._config.with_dynamic(self._config.dynamic_default, settings)
        except InvalidConfig:
            # The controller says what is wrong with it.
            return None
        return config if any(each.is_changed_by(config) for each in self.by_listener.values()) else None

    def _check(self, config: BrokerConfig, now_s: float) -> None:
        for each in self.by_listener.values():
            if each.is_changed_by(config):
                each.check(config, now_s)

    def tick(self) -> None:
        """Look at the files and at the end of the certificates now and then; called every second."""
        self._ticks += 1
        if self._ticks % LOOK_TICKS or self._is_looking:
            return
        now_s = self._runtime.now_ms() / 1000
        for each in self.by_listener.values():
            each.warn_if_ending(now_s)
        self._is_looking = True
        self._runtime.in_thread(self._look, self._on_looked)

    def _look(self) -> list[tuple[ListenerTls, Files]]:
        return [(each, each.look()) for each in self.by_listener.values()]

    def _on_looked(self, found: Iterable[tuple[ListenerTls, Files]] | None, error: BaseException | None) -> None:
        self._is_looking = False
        for each, files in found or ():
            if each.is_changed(files):
                self._make_again(each)

    def _make_again(self, each: ListenerTls) -> None:
        self._runtime.in_thread(partial(each.made_again, self._runtime.now_ms() / 1000), each.replace)


class SecuredNetwork:
    """A network whose outgoing connections are of TLS."""

    def __init__(self, network: Network, tls: OutgoingTls) -> None:
        self._network = network
        self._tls = tls

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Accept,
        *,
        delay_s: Callable[[], float] | None = None,
        tls: AcceptedTls | None = None,
    ) -> Listening:
        return self._network.listen(host, port, on_accept, delay_s=delay_s, tls=tls)

    def connect(
        self, host: str, port: int, receiver: OutgoingReceiver, *, tls: OutgoingTls | None = None
    ) -> OutgoingTransport:
        return self._network.connect(host, port, receiver, tls=tls or self._tls)


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
