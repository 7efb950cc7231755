"""The crash table: the exchange killed at every persistence system call of every step.

`python -m tools.crash_table` writes docs/operate/exchange-crash-table.md. For each scenario strace
is attached to the server and delivers SIGKILL as the n-th call of one kind is entered; then it is
started anew, the client repeats its call and goes on to the end, and the invariants are checked.
"""
