"""The crash table: the exchange killed at every persistence system call of every step.

`python -m tools.crash_table` writes exchange-crash-table.md in docs/operate and docs/ru/operate.
For each scenario strace is attached to the server and delivers SIGKILL as the n-th call of one kind
is entered; then it is started again, the client repeats its call and continues to the end, and the
invariants are checked.
"""
