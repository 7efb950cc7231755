"""CloudEvents 1.0 in binary mode: the attributes of an event as headers `ce_…`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import uuid4

from postroad.bus.errors import InvalidArgument
from postroad.bus.hstore import Hstore


def cloud_event(event_type: str, source: str, **attributes: str) -> Hstore:
    """Return the headers of a CloudEvent, for `post(…, headers=cloud_event(…))`.

    `attributes` are others of the specification and extensions; id and time are added if they are
    left out. datacontenttype becomes the header `content_type`. Raises InvalidArgument.
    """
    known = {"specversion": "1.0", "type": event_type, "source": source, "id": str(uuid4())}
    known |= {"time": datetime.now(UTC).isoformat(), **attributes}
    for name, value in known.items():
        if not re.fullmatch("[a-z0-9]+", name) or not value:
            hint = "names have small letters and digits only, and values are not empty"
            raise InvalidArgument(f"invalid attribute of a CloudEvent: {name}", hint=hint)
    content_type = known.pop("datacontenttype", None)
    headers: dict[str, str | None] = {f"ce_{name}": value for name, value in known.items()}
    return headers | ({"content_type": content_type} if content_type else {})
