"""A real cluster on one machine: `make cluster`.

```
clients ──> PgBouncer :6432 ──> HAProxy :5000 ──> primary of pg1, pg2, pg3 :5432   (node front)
        └──────────────────────────────────> pg1, pg2, pg3: PostgreSQL, Patroni ──> et1, et2, et3
        └──> HAProxy :5672 ─────────────────────>  rq1, rq2, rq3: RabbitMQ
```

Each node is a network namespace with an address on one bridge, or, where namespaces are not
permitted, a loopback address. The folders of PostgreSQL nodes are small file systems in memory,
where mounting is permitted. Everything is in one folder with `cluster.json`, from which another
program finds it again; only processes started here are ever ended.
"""

from __future__ import annotations

from proof.cluster.configuration import DATABASE, ETCD, POSTGRES, RABBIT
from proof.cluster.control import Cluster, default_folder

__all__ = ["DATABASE", "ETCD", "POSTGRES", "RABBIT", "Cluster", "default_folder"]
