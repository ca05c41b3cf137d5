"""A request that is not served, as the JSON object that the registry and Kafka Connect answer, too."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse


class RequestRefused(Exception):
    """A request that is answered with a status and a sentence in place of what it asked for."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse({"error_code": self.status, "message": self.message}, self.status, self.headers)
