"""Sample partners of the exchange, so that something moves on the first run.

```
SampleMobileClient ──order──> exchange ──process──> SampleErp ──insert──> its own SQLite file
        ▲                                               │
        └────────────────── confirmation ───────────────┘
```
"""

from postroad.exchange.sample.erp import SampleErp
from postroad.exchange.sample.mobile import SampleMobileClient

__all__ = ["SampleErp", "SampleMobileClient"]
