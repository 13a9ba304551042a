"""What a person should know about data that can be used all the same."""

import logging
import os
from functools import cache

logger = logging.getLogger(__name__)


@cache
def note(text: str) -> None:
    """Say it once, on the first of several ranks, where broken images are named too."""
    if os.environ.get("RANK", "0") == "0":
        logger.warning(text)
