"""Coordination: entity changes replicated from a Writer to Readers by way of a Coordinator.

**What it promises.** A transaction that changes a tracked table also writes one event with a
payload for every changed row. Readers apply events whole, in the order of their commits, each once.
A *replicate* event cannot be refused; a *two-phase* event is applied by all Readers or by none, and
undone at the Writer if one of them refuses; changes made since are not overwritten.

**States of an event.**

```
Created ─publish─> Saving ─> Saved, Activated ─> Preparing ─> Prepared ─> Processing ─> Processed
 Writer             Writer    Coordinator         Reader pulls pages       Reader checks: its vote

Processed ─decision or no veto asked─> Committing ─> Committed
          └a no, or the deadline────> Canceling  ─> Canceled
```

**What happens when it dies half-way.** Every step is one transaction in one database, together with
the message that it sends. If a Writer dies, events wait without a position or an outcome, and are
sent again. If a Reader dies, it continues from its cursor, which is stored with its staged rows. If
the Coordinator dies, an event without a decision row is not committed, and the deadline decides.
Messages may be lost, duplicated or late: positions and decisions are stored, and each side repeats
calls that got no answer.

**Use.**

```python
from postroad import coordination

coordination.writer(engine).track(Item, Node)                    # at the Writer
coordination.reader(replica_engine, "lists").replicate(Item, Node)   # at a Reader
```

`Writer`, `Coordinator` and `Reader` are the services; `postroad coordination serve …` runs them.
"""

from postroad.coordination.bridges import install_bridges, make_bridges
from postroad.coordination.coordinator_service import Coordinator
from postroad.coordination.entities import EntityReader, EntityWriter, engine_url, reader, writer
from postroad.coordination.errors import *  # noqa: F403 - every error is public
from postroad.coordination.reader_service import Change, Reader
from postroad.coordination.snapshot import take_snapshot
from postroad.coordination.writer_service import Writer

__all__ = [
    "Change", "Coordinator", "EntityReader", "EntityWriter", "Reader", "Writer", "engine_url",
    "install_bridges", "make_bridges", "reader", "take_snapshot", "writer",
]  # fmt: skip
