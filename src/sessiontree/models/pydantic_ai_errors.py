"""Map errors of Pydantic AI to ours.

Pydantic AI classifies the errors of large providers by their codes. Other servers report an overflow only in the
message text, which is recognized here.
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


def map_error(error: Exception, endpoint: Endpoint, partial: Assistant | None) -> ModelError:
    """Convert an error of the library. The message has the model, the provider's own message, and the next step."""
    message = f"{endpoint.name}: {_provider_message(error)}"
    retry_after = error.retry_after if isinstance(error, library.ModelAPIError) else None
    match error:
        case library.ModelContextWindowExceededError():
            return ContextOverflowError(f"{message} (the conversation is larger than the model's window)", partial)
        case library.ModelAuthenticationError():
            keys = " or ".join(endpoint.key_variables)
            return ModelAccessError(f"{message} (the key was not accepted: check {keys})", partial)
        case library.ModelQuotaExceededError():
            return ModelAccessError(f"{message} (the account has no credit or quota left)", partial)
        case library.ModelRateLimitError():
            return BusyModelError(f"{message} (rate limit{_wait(retry_after)})", partial, retry_after)
        case library.ModelUnavailableError() | library.ModelServerError():
            return BusyModelError(f"{message} (the provider is overloaded or has a fault)", partial, retry_after)
        case library.ModelConnectionError() | library.ModelRequestTimeout():
            unreachable = UnreachableError(f"{message} (the connection failed or was interrupted)", partial)
            unreachable.was_sent = not _never_connected(error)
            return unreachable
        case library.ModelRequestRejectedError() if _is_overflow(error):
            return ContextOverflowError(f"{message} (the conversation is larger than the model's window)", partial)
        case library.ModelNotFoundError():
            return RefusedRequestError(f"{message} (is {endpoint.model!r} the right name?)", partial)
        case library.ModelRequestRejectedError():
            return RefusedRequestError(f"{message} (the provider rejected this request)", partial)
        case library.ModelHTTPError() if error.status_code == _PAYLOAD_TOO_LARGE or _is_overflow(error):
            return ContextOverflowError(f"{message} (the conversation is larger than the model's window)", partial)
        case _:
            return ModelError(message, partial)


def _never_connected(error: BaseException | None) -> bool:
    """Whether the connection was never made, by the causes of the error."""
    while error is not None:
        if type(error).__name__ in _NOT_CONNECTED:
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_overflow(error: library.ModelAPIError) -> bool:
    return _OVERFLOW.search(f"{error.provider_error_code} {error.provider_error_type} {error.body}") is not None


def _provider_message(error: Exception) -> str:
    """The provider's own message, without the library's additions."""
    if isinstance(error, library.ModelHTTPError):
        return _short(f"{error.status_code}: {_message(error.body) or 'no reason was given'}")
    body = error.body if isinstance(error, library.ModelAPIError) else None
    return _short(_message(body) or str(error) or type(error).__name__)


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _LONGEST else f"{folded[:_LONGEST]}…"


def _message(body: object) -> str | None:
    """The message in the body of an error, at whatever depth."""
    if isinstance(body, str):
        return body
    if not isinstance(body, dict):
        return None
    inner = _message(body.get("error"))
    found = body.get("message")
    return inner or (found if isinstance(found, str) else None)


def _wait(seconds: float | None) -> str:
    return f", try again in {seconds:g} s" if seconds is not None else ""
