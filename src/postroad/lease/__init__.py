"""Holding work: claim, extend, acknowledge, release, lost.

A lease is work that belongs to its holder until a deadline. A holder (a bus worker, the broker, the
intake) extends its leases while it works, acknowledges them in batches when it has finished, and
must stop working when one is lost. The client of the exchange is not a holder:
`exchange/client/standalone.py` is one file without dependencies, which extends the single lease of
its process in its own loop (docs/decisions/0020).

```
           extend, three times per ttl
             ┌─────┐
             ▼     │
claim ───> held ───┴── finish ──> finished ── ack ──> gone
             │                        └── ack failed: repeated, acking is idempotent
             ├── release ──> gone: the holder nacks it or gives it back
             └── lost: the server has released it, or its deadline has passed
```

`Keeper` is this state machine: no I/O, no threads, its clock injected. `Holder` runs it in a task:
one loop makes the calls that are due, and a separate timer watches the deadlines, because a call
on a silent network may take longer than the lease. Any thread may claim, finish and release.

When either of them dies, the service that supervises the holder stops with the error.
"""

from postroad.lease.holder import Holder
from postroad.lease.keeper import Keeper, lost_tokens

__all__ = ["Holder", "Keeper", "lost_tokens"]
