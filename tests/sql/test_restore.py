"""A dump of a bus at work, restored: tables are as they were when it began, sequences are ahead."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.sql.calls import maintain, one, post_many, take


@pytest.mark.parametrize("consumers", [1, 2])
def test_no_message_is_hidden_after_a_restore(bus: Connection, consumers: int) -> None:
    if consumers == 2:
        bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, 10)
    sequences = one(
        bus, "select array_agg(relname::text) from pg_class where relname ~ '^q.[$]q[$].*[$]hint$'"
    )
    for name in sequences:
        bus.execute("select setval(%s, 8)", (f'mbus."{name}"',))
    bus.execute("""select setval('mbus."qs$q$head"', 3), setval('mbus."qs$q$tail"', 3)""")
    bus.execute("select mbus._create_slot(q, s) from mbus.queue q, generate_series(0, 3) s")
    assert take(bus) == []
    bus.execute("select mbus.after_restore()")
    maintain(bus)
    assert take(bus) == [str(number) for number in range(1, 11)]
    post_many(bus, 3)
    maintain(bus)
    assert take(bus) == ["1", "2", "3"]
