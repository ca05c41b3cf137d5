"""`strandline connect validate FILE`: what is wrong with the configs of a file, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import AsJson, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.connect.access import CaFile, TokenFile
from strandline.cli.connect.connector_files import read_connector_file
from strandline.cli.connect.local_connector import ConnectorFileName
from strandline.cli.connect.worker_api import CLASS, ConnectApi, WrongSetting, checked_by_worker, sentence_of

AskedUrl = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask this worker, which has its own connectors, paths and secrets."),
]


def validate(
    file: ConnectorFileName,
    url: AskedUrl = None,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Check the connectors of a file without a cluster: classes, types, ranges, transforms, and names with a typo.

    Exit code 5 if a setting is wrong. With --url a worker checks them: it may have other connectors than this machine.
    """
    found = read_connector_file(file)
    output = Output(as_json=as_json)
    api = None if url is None else ConnectApi(url, timeout, ca=ca, token_file=token_file)
    wrong = 0
    for name, config in found.connectors.items():
        findings = list(
            checked_by_worker(api, config) if api is not None else _by_us(output, name, config, found.worker)
        )
        wrong += len(findings)
        for each in findings:
            if as_json:
                told = {"file": str(file), "connector": name, "setting": each.setting, "error": each.message}
                output.json_line(told)
            else:
                output.line(f"{file}: {name}: {sentence_of(each)}")
        if not findings and not as_json:
            output.line(f"{file}: {name} is valid")
    output.flush()
    if wrong:
        raise CommandFailed(f"{file} has {count(wrong, 'error')}", code=ExitCode.UNHEALTHY)


def _by_us(output: Output, name: str, config: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[WrongSetting]:
    from strandline.connect.failures import InvalidConnectorConfig
    from strandline.connect.herder.interface import RequestFailed
    from strandline.connect.herder.worker_settings import WorkerSettings
    from strandline.connect.plugins import Plugins
    from strandline.connect.validation.checks import validate as checked

    if not config.get(CLASS):
        yield WrongSetting(CLASS, f'Missing required configuration "{CLASS}" which has no default value.')
        return
    unknown: dict[str, str] = {}
    try:
        settings = WorkerSettings(worker)
        told = checked(
            Plugins(settings.plugin_modules),
            config,
            defaults=settings.of_connectors(),
            resolve=lambda given: _resolved(given, unknown),
        )
    except (RequestFailed, InvalidConnectorConfig) as error:
        yield WrongSetting(None, str(error))
        return
    for setting in told.settings.values():
        if setting.name in unknown:
            output.talk(f"{name}: {unknown[setting.name]}; the value of {setting.name} is not checked")
            continue
        for message in setting.errors[:1]:
            yield WrongSetting(setting.name, message)


def _resolved(config: Mapping[str, str], unknown: dict[str, str]) -> dict[str, str]:
    """Put in the secrets that there are here. The worker may have others, so what is missing is noted, and no error."""
    from strandline.connect.failures import InvalidConnectorConfig
    from strandline.connect.herder.secrets import Secrets

    secrets = Secrets({}, allows_all=True)
    found: dict[str, str] = {}
    for name, value in config.items():
        try:
            found |= secrets.resolve({name: value})
        except InvalidConnectorConfig as error:
            unknown[name] = str(error)
            found[name] = value
    return found
