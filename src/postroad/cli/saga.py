"""`postroad saga`: see sagas, roll them back, retry or settle what is parked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

import click

from postroad.bus import Bus, SagaNotFound, Sagas, SagaStep, saga_picture
from postroad.cli.bus_output import print_facts
from postroad.cli.context import Application, pass_application
from postroad.cli.output import dry_run_option, json_option, print_json, print_table

# As large as the database counts.
SAGA_ID = click.IntRange(1, 2**63 - 1)
STATES = ("running", "completed", "compensating", "compensated", "stuck")


@click.group()
def saga() -> None:
    """Sagas: what they do, cancel and retry.

    Example: postroad saga list --state stuck
    """


@saga.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The latest so many.",
)
@json_option
@pass_application
def list_sagas(application: Application, state: str | None, limit: int, as_json: bool) -> None:
    """List sagas, the latest first.

    Example: postroad saga list --state stuck
    """
    with application.connection() as connection:
        steps = Sagas(Bus(connection)).status(state=state, limit=limit)
    rows = [_summary(list(group)) for _, group in groupby(steps, attrgetter("saga_id"))]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("there are no sagas", err=True)
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


@saga.command()
@click.argument("saga_id", type=SAGA_ID)
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print the graph as Mermaid.")
@json_option
@pass_application
def show(application: Application, saga_id: int, as_mermaid: bool, as_json: bool) -> None:
    """Draw one saga, step by step, with times, attempts and errors.

    Example: postroad saga show 42

    Example: postroad saga show 42 --mermaid
    """
    with application.connection() as connection:
        steps = Sagas(Bus(connection)).status(saga_id)
    if not steps:
        raise SagaNotFound(f"there is no saga {saga_id}", hint="look at: postroad saga list")
    if as_json:
        print_facts(steps, as_json=True, empty="")
    elif as_mermaid:
        click.echo(saga_picture.mermaid(steps))
    else:
        first = steps[0]
        late = ", late" if first.is_late else ""
        why = f": {first.error}" if first.error else ""
        click.echo(f"saga {first.saga_id} {first.saga}: {first.state}{late}{why}\n")
        click.echo("\n".join(saga_picture.text(steps)) + "\n")
        print_facts(
            steps,
            as_json=False,
            empty="",
            columns=("step", "step_state", "do_iid", "done_at", "undo_iid", "undone_at"),
        )


@saga.command()
@click.argument("saga_id", type=SAGA_ID)
@click.option("--reason", help="Why; it is kept with the saga.")
@dry_run_option
@json_option
@pass_application
def cancel(
    application: Application, saga_id: int, reason: str | None, is_dry_run: bool, as_json: bool
) -> None:
    """Roll a saga back: what was done is compensated, in reverse order.

    Example: postroad saga cancel 42 --reason "the customer called"
    """
    with application.connection() as connection:
        is_begun = Sagas(Bus(connection)).cancel(saga_id, reason)
        if is_dry_run:
            connection.rollback()
    if as_json:
        print_json({"saga_id": saga_id, "is_begun": is_begun, "is_dry_run": is_dry_run})
    elif is_begun:
        click.echo(f"saga {saga_id} {'would be' if is_dry_run else 'is being'} rolled back")
    else:
        click.echo(f"saga {saga_id} was rolled back before")


@saga.command()
@click.argument("saga_id", type=SAGA_ID)
@dry_run_option
@json_option
@pass_application
def retry(application: Application, saga_id: int, is_dry_run: bool, as_json: bool) -> None:
    """Give the dead messages of a stuck saga back to their handlers.

    Example: postroad saga retry 42
    """
    with application.connection() as connection:
        count = Sagas(Bus(connection)).retry(saga_id)
        if is_dry_run:
            connection.rollback()
    if as_json:
        print_json({"saga_id": saga_id, "retried": count, "is_dry_run": is_dry_run})
    else:
        click.echo(f"{count} {'would come' if is_dry_run else 'came'} back")


@saga.command()
@click.argument("saga_id", type=SAGA_ID)
@click.argument("step")
@json_option
@pass_application
def settle(application: Application, saga_id: int, step: str, as_json: bool) -> None:
    """Say that somebody did by hand what a stuck step asks for; the saga goes on.

    For a step whose message is lost, or that will never succeed: a failed one past the pivot then
    counts as done, a parked compensation as compensated.

    Example: postroad saga settle 42 rooms
    """
    with application.connection() as connection:
        is_settled = Sagas(Bus(connection)).settle(saga_id, step)
    if as_json:
        print_json({"saga_id": saga_id, "step": step, "is_settled": is_settled})
    elif is_settled:
        click.echo(f"step {step} of saga {saga_id} is settled")
    else:
        click.echo(f"saga {saga_id} is not stuck at step {step}")


def _summary(steps: Sequence[SagaStep]) -> dict[str, object]:
    first = steps[0]
    done = sum(step.step_state in {"done", "compensating", "parked"} for step in steps)
    return {
        "id": first.saga_id,
        "saga": first.saga,
        "state": first.state,
        "steps": len(steps),
        "done": done,
        "is_late": first.is_late,
        "created_at": first.created_at,
        "finished_at": first.finished_at,
        "error": first.error,
    }
