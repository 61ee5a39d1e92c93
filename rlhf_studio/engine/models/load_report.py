"""What transformers logs about weights that do not fit a model, held back until it is known whether they are a head of our own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

LOGGER = "transformers.modeling_utils"
TITLE = "LOAD REPORT"


class LoadReport(logging.Filter):
    """Keeps the report that would have been logged."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged at once."""
        if TITLE not in record.getMessage():
            return True
        self._held.append(record)
        return False

    def tell(self) -> None:
        """Log it after all."""
        for record in self._held:
            logging.getLogger(LOGGER).handle(record)


@contextlib.contextmanager
def report_held_back() -> Iterator[LoadReport]:
    """Inside, nothing is logged about weights that do not fit; whoever loads a model decides afterwards."""
    report, logger = LoadReport(), logging.getLogger(LOGGER)
    logger.addFilter(report)
    try:
        yield report
    finally:
        logger.removeFilter(report)
