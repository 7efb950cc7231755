"""Job queues on PostgreSQL under the contract of a public harness, without containers.

`adapter` speaks that contract for Postroad; `contract` is the part that every adapter shares; the
peers' adapters are in `benchmarks/peers`. The other modules run adapters and measure them.
"""
