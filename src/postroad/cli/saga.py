"""`postroad saga`: list and draw sagas, roll them back, retry or settle stuck ones."""

from __future__ import annotations

import click

from postroad.bus import Bus, SagaNotFound, Sagas, saga_picture
from postroad.bus.saga_resources import CANCEL, RETRY, SAGAS, SETTLE
from postroad.cli.bus import bus_run
from postroad.cli.context import Application, command
from postroad.cli.derived import action_command, list_command
from postroad.cli.output import print_records

# The maximum of the database type.
SAGA_ID = click.IntRange(1, 2**63 - 1)


@click.group()
def saga() -> None:
    """Sagas: list, show, cancel, retry, settle.

    Example: postroad saga list --state stuck
    """


for one in (
    list_command(SAGAS, bus_run, "list", limit=100),
    *(action_command(action, bus_run) for action in (CANCEL, RETRY, SETTLE)),
):
    saga.add_command(one)


@command(saga)
@click.argument("saga_id", type=SAGA_ID)
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print the graph as Mermaid.")
def show(application: Application, saga_id: int, as_mermaid: bool, as_json: bool) -> None:
    """Draw one saga, step by step, with times, attempts and errors.

    Example: postroad saga show 42

    Example: postroad saga show 42 --mermaid
    """
    with application.connection() as connection:
        steps = Sagas(Bus(connection)).status(saga_id)
    if not steps:
        raise SagaNotFound(f"there is no saga {saga_id}", hint="see: postroad saga list")
    if as_mermaid and not as_json:
        click.echo(saga_picture.mermaid(steps))
        return
    if not as_json:
        first = steps[0]
        late = ", late" if first.is_late else ""
        why = f": {first.error}" if first.error else ""
        click.echo(f"saga {first.saga_id} {first.saga}: {first.state}{late}{why}\n")
        click.echo("\n".join(saga_picture.text(steps)) + "\n")
    columns = ("step", "step_state", "do_iid", "done_at", "undo_iid", "undone_at")
    print_records(steps, as_json=as_json, columns=columns)
