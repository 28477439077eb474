"""The library's errors -> ours: who has to do what now.

The library sorts the errors of the large providers by their codes. Servers that only say in words that a request is too
large are recognised here by those words.
"""

from __future__ import annotations

import re

from pydantic_ai import exceptions as library

from sessiontree.core.messages import Assistant
from sessiontree.errors import (
    BusyModelError,
    ContextOverflowError,
    ModelAccessError,
    ModelError,
    RefusedRequestError,
    UnreachableError,
)
from sessiontree.models.endpoints import Endpoint

_OVERFLOW = re.compile(
    r"exceed_context_size|context[ _](?:length|size|window)|maximum context|too many tokens|prompt is too long"
    r"|input is too long|exceed context limit|token limit|request_too_large",
    re.IGNORECASE,
)
_PAYLOAD_TOO_LARGE = 413
_NOT_CONNECTED = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ConnectionRefusedError", "gaierror")
_LONGEST = 400


def our_error(error: Exception, endpoint: Endpoint, partial: Assistant | None) -> ModelError:
    """What an error of the library means. Its message says who failed, what they said, and the next step."""
    said = f"{endpoint.name}: {_said(error)}"
    retry_after = error.retry_after if isinstance(error, library.ModelAPIError) else None
    match error:
        case library.ModelContextWindowExceededError():
            return ContextOverflowError(f"{said} (the conversation is larger than the model's window)", partial)
        case library.ModelAuthenticationError():
            keys = " or ".join(endpoint.key_variables)
            return ModelAccessError(f"{said} (the key was not accepted: check {keys})", partial)
        case library.ModelQuotaExceededError():
            return ModelAccessError(f"{said} (the account has no credit or quota left)", partial)
        case library.ModelRateLimitError():
            return BusyModelError(f"{said} (rate limit{_wait(retry_after)})", partial, retry_after)
        case library.ModelUnavailableError() | library.ModelServerError():
            return BusyModelError(f"{said} (the provider is overloaded or has a fault)", partial, retry_after)
        case library.ModelConnectionError() | library.ModelRequestTimeout():
            unreachable = UnreachableError(f"{said} (the connection failed or broke off)", partial)
            unreachable.was_sent = not _never_connected(error)
            return unreachable
        case library.ModelRequestRejectedError() if _is_overflow(error):
            return ContextOverflowError(f"{said} (the conversation is larger than the model's window)", partial)
        case library.ModelNotFoundError():
            return RefusedRequestError(f"{said} (is {endpoint.model!r} the right name?)", partial)
        case library.ModelRequestRejectedError():
            return RefusedRequestError(f"{said} (the provider does not take this request)", partial)
        case library.ModelHTTPError() if error.status_code == _PAYLOAD_TOO_LARGE or _is_overflow(error):
            return ContextOverflowError(f"{said} (the conversation is larger than the model's window)", partial)
        case _:
            return ModelError(said, partial)


def _never_connected(error: BaseException | None) -> bool:
    """Whether no connection was made, by what the libraries below say."""
    while error is not None:
        if type(error).__name__ in _NOT_CONNECTED:
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_overflow(error: library.ModelAPIError) -> bool:
    return _OVERFLOW.search(f"{error.provider_error_code} {error.provider_error_type} {error.body}") is not None


def _said(error: Exception) -> str:
    """What the provider said, without what the library puts around it."""
    if isinstance(error, library.ModelHTTPError):
        return _short(f"{error.status_code}: {_message(error.body) or 'no reason was given'}")
    body = error.body if isinstance(error, library.ModelAPIError) else None
    return _short(_message(body) or str(error) or type(error).__name__)


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _LONGEST else f"{folded[:_LONGEST]}…"


def _message(body: object) -> str | None:
    """The message in the body of an error, as deep as providers put it."""
    if isinstance(body, str):
        return body
    if not isinstance(body, dict):
        return None
    inner = _message(body.get("error"))
    found = body.get("message")
    return inner or (found if isinstance(found, str) else None)


def _wait(seconds: float | None) -> str:
    return f", try again in {seconds:g} s" if seconds is not None else ""
