"""Registers `mbus` with Kombu and Celery, as a transport and a result backend.

Celery reads the entry points `celery.result_backends`. Kombu has none for transports, but reads
those of `kombu.serializers` when it is imported; ours names `SERIALIZER`, whose import registers
the transport.
"""

import json
import sys
from functools import partial

TRANSPORT = "postroad.broker.transport:Transport"
BACKEND = "postroad.broker.results:ResultBackend"


def register() -> None:
    """Register `mbus` with Kombu and Celery; idempotent."""
    from kombu.transport import TRANSPORT_ALIASES

    TRANSPORT_ALIASES.setdefault("mbus", TRANSPORT)
    # Celery cannot be imported while Kombu is being imported; its entry point is used then.
    specification = getattr(sys.modules.get("kombu.serialization"), "__spec__", None)
    if not getattr(specification, "_initializing", False):
        from celery.app.backends import BACKEND_ALIASES

        BACKEND_ALIASES.setdefault("mbus", BACKEND)


# Plain JSON without extensions.
_encode = partial(json.dumps, separators=(",", ":"))
SERIALIZER = (_encode, json.loads, "application/x-postroad+json", "utf-8")

register()
