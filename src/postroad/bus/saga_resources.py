"""The list of sagas and its actions; see `postroad.bus.resources`."""

from dataclasses import replace

from postroad.bus import operations
from postroad.bus.errors import SagaNotFound
from postroad.operate import Action, Column, Filter, Resource

STATES = ("running", "compensating", "stuck", "completed", "compensated")

SAGAS = Resource(
    "saga.sagas",
    "saga",
    "mbus.saga_list",
    "List sagas, the latest first.",
    (
        Column("id", "ID", "ID", "id"),
        Column("saga", "Saga", "Сага"),
        Column("state", "State", "Состояние", "state", is_nullable=False),
        Column("steps", "Steps", "Шаги", "number"),
        Column("done", "Done", "Выполнено", "number"),
        Column("is_late", "Late", "Опаздывает", "boolean", is_listed=False),
        Column("error", "Error", "Ошибка"),
        Column("created_at", "Created", "Создана", "moment"),
        Column("finished_at", "Finished", "Завершена", "moment"),
        Column("deadline", "Deadline", "Крайний срок", "moment", is_listed=False),
    ),
    (
        Filter("state", "State", "Состояние", "Only in this state.", choices=STATES),
        Filter("saga", "Saga", "Сага", "Only with this name."),
    ),
    example="postroad saga list --state stuck",
    missing=SagaNotFound,
)

# For frequent reads: without the steps of each saga.
STUCK_SAGAS = replace(
    SAGAS,
    name="saga.stuck",
    source="(select saga_id as id, saga, saga_state as state, steps, steps_done as done,"
    " false as is_late, created_at, finished_at, deadline, error"
    " from mbus.sagas(state => 'stuck', amt => 1000))",
)

CANCEL = Action(
    operations.cancel,
    "the rollback of saga {saga_id} {be} started",
    SAGAS,
    "Cancel the saga",
    "Отменить сагу",
    result="is_begun",
    unchanged="saga {saga_id} was already rolled back",
    needs=("by",),
    when={"state": ("running",)},
    is_danger=True,
)
RETRY = Action(
    operations.retry,
    "{retried} {be} redriven",
    SAGAS,
    "Retry dead messages",
    "Повторить недоставленные",
    result="retried",
    when={"state": ("stuck",)},
)
SETTLE = Action(
    operations.settle,
    "step {step} of saga {saga_id} {be} settled",
    SAGAS,
    result="is_settled",
    unchanged="saga {saga_id} is not stuck at step {step}",
)
