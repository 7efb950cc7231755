"""The exchange passes files to ERP instances in two-phase processes; nothing is lost or doubled.

Messages arrive over HTTP and are stored as files in the folders of their database. An instance of
that ERP starts a process (API_1), gets files, processes them in one transaction of its own
database, sends replies and results (API_3), commits, and reports it (API_4). The rows of schema
`exchange` are authoritative; the folders follow by an idempotent redo of the recorded moves.

```
STARTED ── prepare ──> READY_TO_COMMIT ── commit ──> CLEANUP ── files moved ──> DONE
   │                      │      │                    │  ▲
   │ abort, fail          │      │ timed out,         ▼  │ moves retried
   ▼                      │      ▼ server restarted  FAILED
ABORTED <── abort ────────┘   UNKNOWN ── commit, abort, resolve ──> CLEANUP, ABORTED
CANCELLED <── timed out, released (from STARTED)
```

Invariants, after any crash:

- I1 an acknowledged message is in exactly one of queued, leased, done, parked;
- I2 its effect is in the ERP's database at most once;
- I3 replies are visible if and only if the ERP's transaction committed;
- I4 when faults have stopped, every process ends without an administrator, if the ERP's database
  answers;
- I5 every call, repeated, gives the same answer;
- I6 a restart at any point leads to the same final state as none.

A server that dies leaves rows and files. The next one takes over with a new generation, finishes
the recorded moves, and regards processes that were ready to commit as in doubt; the next instance
on that database settles them by their markers.
"""
