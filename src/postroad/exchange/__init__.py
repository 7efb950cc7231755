"""The exchange: hands files to ERP instances in two-phase processes, and loses and doubles nothing.

Messages come in over HTTP and lie as files in the folders of their database. An instance of that
ERP begins a process (API_1), gets files, works in one transaction of its own database, hands in
replies and results (API_3), commits, and says so (API_4). The rows of schema `exchange` are the
truth; the folders follow by an idempotent redo of what the rows say.

```
STARTED ── prepare ──> READY_TO_COMMIT ── commit ──> CLEANUP ── files moved ──> DONE
   │                      │      │                    │  ▲
   │ abort, fail          │      │ timed out,         ▼  │ tried again
   ▼                      │      ▼ server restarted  FAILED
ABORTED <── abort ────────┘   UNKNOWN ── commit, abort, resolve ──> CLEANUP, ABORTED
CANCELLED <── timed out, released (from STARTED)
```

What holds, whatever crashes:

- I1 an acknowledged message is in exactly one of queued, leased, done, parked;
- I2 its effect is in the ERP's database at most once;
- I3 replies are visible if and only if the ERP's transaction committed;
- I4 when faults have stopped, every process ends without a person, if the ERP's database answers;
- I5 every call, repeated, gives the same answer;
- I6 a restart at any point leads to the same final state as none.

A server that dies leaves rows and files; the next one takes over with a new generation, finishes
the moves that were decided, and puts processes that were ready to commit in doubt, which the
next instance on that database settles by its marker.
"""
