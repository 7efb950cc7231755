"""The broker: Celery runs on the bus, with PostgreSQL alone.

```python
url = "mbus://user:password@host/database"              # or mbus:/// for the embedded server
app = Celery(broker=url, backend=url)
```

**What it promises.** A published task is durable on return and is delivered at least once. A
worker holds it by a lease that its heartbeat extends for as long as the task runs. After `kill -9`
it is redelivered within seconds, after an orderly shutdown immediately. A task with an ETA
waits in the database, not in a worker. Waiting consumers are woken by NOTIFY.

**States of a task message.**

```
publish ──> ready ──lease──> with a worker ──ack──> gone
   │          ▲                  │ │
   │          └──requeue, shutdown, no heartbeat
   └──eta──> delayed               └──reject──> dmq
```

**Modules.** `transport` and `channel` are what Kombu calls; `leases` and `upkeep` run beside the
loop of a worker; `results` is Celery's result backend.
"""

from postroad.broker.errors import BrokerError, UrlInvalid
from postroad.broker.registration import register

__all__ = ["BrokerError", "UrlInvalid", "register"]
