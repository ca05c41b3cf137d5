"""Where the password of a user comes from: a person, a file, standard input, or chance. Never the command line."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from strandline.cli.common.failures import CommandFailed, UsageFailed

GENERATED_BYTES: Final = 24
STDIN: Final = "-"

Generate = Annotated[bool, typer.Option("--generate", help="Make a password and print it, this once.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="A file with the password; - is standard input."),
]


def password_for(name: str, *, generate: bool, file: Path | None) -> str:
    """Return the password. Raise UsageFailed if nothing says where it comes from."""
    if generate and file is not None:
        raise UsageFailed("--generate and --password-file exclude each other")
    if generate:
        return secrets.token_urlsafe(GENERATED_BYTES)
    if file is not None:
        return _checked(_read(file))
    if not sys.stdin.isatty():
        raise UsageFailed(
            "there is no terminal to ask for the password", hint="say --generate, or --password-file with a file or -"
        )
    return _checked(str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)))


def _read(file: Path) -> str:
    try:
        content = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
        # An editor or `echo` ends the file with a line break, which is no part of the password.
        return content.decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise CommandFailed("the password is no UTF-8 text") from None


def _checked(password: str) -> str:
    if not password:
        raise UsageFailed("the password is empty")
    if "\n" in password or "\0" in password:
        raise UsageFailed("the password has more than one line, or a zero byte")
    return password
