"""How a request changes the users file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import LastReply, Refused, RequestContext
from holdfast.broker.security.users import Users, UsersFileError
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)


async def edit(broker: Broker, context: RequestContext, change: Callable[[Users], Users], response: Any) -> Any:
    """Answers `response` once the change is on disk and in force. Raises Refused if it cannot be stored."""
    try:
        must_end = await broker.edit_users(change, context.connection)
    except UsersFileError as error:
        logger.error("a change of users or ACLs by %s is refused: %s", context.connection.principal, error)
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    return LastReply(response, "its user has another password") if must_end else response
