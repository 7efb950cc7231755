"""A tour: a room, two flights that depend on the room, a transfer for each flight.

    python examples/tour.py "$POSTROAD_DATABASE_URL"

Two tours are booked by real workers: for the first there is everything, for the second no flight
home, and what was booked is cancelled, last first.
"""

from __future__ import annotations

import sys
import threading

from psycopg import Connection

from postroad.bus import Bus, Message, Park, Saga, Sagas, Worker, saga_picture

STEPS = {
    "room": ("rooms_reservations", "cancel_room_reservations", []),
    "ticket_to": ("book_tickets", "cancel_ticket_booking_to", ["room"]),
    "ticket_from": ("book_tickets", "cancel_ticket_booking_from", ["room"]),
    "transfer_to": ("transfer_to", "cancel_transfer_to", ["ticket_to"]),
    "transfer_from": ("transfer_from", "cancel_transfer_from", ["ticket_from"]),
}
QUEUES = {queue for do, undo, _ in STEPS.values() for queue in (do, undo)} | {"tour_is_over"}


def tour(customer: str) -> Saga:
    """Write down what a tour consists of."""
    saga = Saga(
        "tour",
        data={"customer": customer},
        on_completed="tour_is_over",
        on_compensated="tour_is_over",
    )
    for name, (do, undo, after) in STEPS.items():
        saga.step(name, do=do, undo=undo, after=after)
    return saga


def main(dsn: str) -> None:
    """Book two tours."""
    over = threading.Event()
    worker = Worker(dsn)

    def book(message: Message, connection: Connection) -> None:
        step, customer = message.headers["step"], message.data["customer"]
        if customer == "Bob" and step == "ticket_from":
            raise Park("no seats")  # the saga is rolled back
        # An external service would get message.headers["idempotency_key"].
        connection.execute("insert into booking values (%s, %s)", (customer, step))

    def cancel(message: Message, connection: Connection) -> None:
        step, customer = message.headers["step"], message.data["customer"]
        connection.execute(
            "delete from booking where customer = %s and what = %s", (customer, step)
        )

    def finish(message: Message, connection: Connection) -> None:
        del message, connection
        over.set()

    for queue in {do for do, _, _ in STEPS.values()}:
        worker.handler(queue)(book)
    for _, undo, _ in STEPS.values():
        worker.handler(undo)(cancel)
    worker.handler("tour_is_over")(finish)

    with Bus(dsn) as bus, Connection.connect(dsn, autocommit=True) as connection:
        for queue in QUEUES:
            bus.create_queue(queue, payload="jsonb")
        connection.execute("create table booking (customer text, what text)")
        with worker:
            for customer in ("Alice", "Bob"):
                over.clear()
                saga_id = tour(customer).start(bus)
                over.wait(timeout=60)
                steps = Sagas(bus).status(saga_id)
                print(f"{customer}: {steps[0].state}")  # noqa: T201 - an example speaks
                print("\n".join(saga_picture.text(steps)))  # noqa: T201
        left = connection.execute("select customer, count(*) from booking group by 1").fetchall()
        print(f"booked: {left}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
