"""Logging, set up once by the command line: JSON for machines, colour for a terminal.

Components log through the standard library or structlog; both use the same renderer. Event names
are stable identifiers and values are fields. Message bodies and secrets are never logged.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def set_up(*, level: str = "info", shape: str = "auto", stream: TextIO | None = None) -> None:
    """Send every log line of this process to one stream, standard error by default.

    `shape` is `json`, `terminal`, or `auto`, which is `terminal` if the stream is one. A
    second call replaces the first.
    """
    out = stream if stream is not None else sys.stderr
    as_json = shape == "json" or (shape == "auto" and not out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor
    if as_json:
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty())
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
