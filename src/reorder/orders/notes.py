"""Notes about what can be used, but is not what one may expect."""

import logging
import os
from functools import cache

logger = logging.getLogger(__name__)


@cache
def note(text: str) -> None:
    """Log it once, on the first of several ranks, where broken images are logged too."""
    if os.environ.get("RANK", "0") == "0":
        logger.warning(text)
