"""Lists and actions for operators: resources and actions, declared once per component.

A component declares both in `<component>/resources.py`:

```
Resource ──> commands that list and show     postroad.cli.derived
   │    ├──> console list with its filters   postroad.console.parts.resources
   │    └──> HTTP list with OpenAPI model    postroad.operate.http
   └─ Action ──> command, console button, both also for "all that match"
```

The same columns, filters, sort keys and pages appear in all of them, so adding a column is one
line in one file. Reading a page needs only the driver.
"""

from postroad.operate.action import Action, Parameter
from postroad.operate.resource import (
    Column,
    Filter,
    FilterInvalid,
    Journey,
    Kind,
    Page,
    Query,
    Resource,
    Row,
    RowNotFound,
)

__all__ = [
    "Action", "Column", "Filter", "FilterInvalid", "Journey", "Kind", "Page", "Parameter", "Query",
    "Resource", "Row", "RowNotFound",
]  # fmt: skip
