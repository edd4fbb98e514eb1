"""Changing the users file on behalf of a request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from holdfast.broker.api.replies import PartialError, ReplyAndClose
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.users_file import Users, UsersFileError
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)


async def edit_users(
    services: Services, context: RequestContext, change: Callable[[Users], Users], response: Any
) -> Any:
    """Answers `response` once the change is on disk and in force. Raises PartialError if it cannot be stored."""
    assert services.user_changes is not None, "without a users file the request is refused before"
    try:
        must_end = await services.user_changes.edit(change, context.session)
    except UsersFileError as error:
        logger.error("a change of users or ACLs by %s failed: %s", context.session.principal, error)
        raise PartialError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    return ReplyAndClose(response, "its user has a new password") if must_end else response
