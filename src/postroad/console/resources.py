"""Lists for administrators of the console; see `postroad.operate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from postroad.console import operations
from postroad.operate import Action, Column, Filter, Resource, Row
from postroad.operate.memory import Rows


async def _as_rows(found: Sequence[Any]) -> list[Row]:
    return [asdict(one) for one in found]


SETTINGS = Resource(
    "console.settings", "setting", Rows(_as_rows),
    "List the effective settings with their sources.",
    (
        Column("name", "Setting", "Настройка", "code"),
        Column("value", "Value", "Значение"),
        Column("source", "Source", "Источник", "word", is_sortable=True),
    ),
    (
        Filter("search", "Search", "Поиск", columns=("name", "value", "source"), is_search=True),
    ),
    key="name", is_descending=False,
)  # fmt: skip

AUDIT = Resource(
    "console.audit", "entry", "console.audit",
    "List actions that were done or refused, the latest first.",
    (
        Column("id", "Entry", "Запись", "id", is_listed=False, index="audit_pkey"),
        Column("at", "At", "Когда", "moment"),
        Column("account", "Account", "Учётная запись", index="audit_by_account_idx",
               is_nullable=False),
        Column("role", "Role", "Роль", is_listed=False),
        Column("action", "Action", "Действие", "code", index="audit_by_action_idx",
               is_nullable=False),
        Column("target", "Target", "Объект"),
        Column("outcome", "Outcome", "Исход", "state"),
        Column("detail", "Details", "Подробности", "json"),
        Column("error", "Error", "Ошибка", is_listed=False),
        Column("address", "Address", "Адрес", "code"),
        Column("ended_at", "Ended", "Завершено", "moment", is_listed=False),
    ),
    (
        Filter("search", "account, action, target", "имя, действие или объект", is_search=True,
               columns=("account", "action", "target", "outcome", "error", "detail")),
    ),
)  # fmt: skip

ACCOUNTS = Resource(
    "console.accounts", "account", "console.accounts()", "List the accounts and their roles.",
    (
        Column("name", "Account", "Учётная запись"),
        Column("role", "Role", "Роль", is_sortable=True),
        Column("issuer", "Sign-in", "Вход"),
        Column("sessions", "Sessions", "Сеансы", "number", is_sortable=True),
        Column("created_at", "Created", "Создана", "moment", is_sortable=True),
        Column("changed_at", "Changed", "Изменена", "moment", is_sortable=True),
    ),
    (Filter("search", "Search", "Поиск", columns=("name", "role", "issuer"), is_search=True),),
    key="name", is_descending=False, example="postroad console accounts",
)  # fmt: skip

_ONCE = "its password is not shown again:\n\n  {password}\n"
ACCOUNT_ACTIONS = (
    Action(operations.add, "account {name} {be} ready; " + _ONCE, ACCOUNTS),
    Action(operations.password, "account {name} {be} changed; " + _ONCE, ACCOUNTS),
    Action(
        operations.token,
        "account {name} has a token, which is not shown again:\n\n  {token}\n",
        ACCOUNTS,
    ),
    Action(
        operations.drop,
        "account {name} {be} removed",
        ACCOUNTS,
        result="is_removed",
        unchanged="account {name} does not exist",
    ),
)

SERVICES = Resource(
    "console.services", "service",
    "(select s.host || '/' || s.name as id, s.* from console.services() s)",
    "List the services of all hosts.",
    (
        Column("id", "Service", "Служба", is_listed=False),
        Column("name", "Service", "Служба", is_sortable=True),
        Column("state", "State", "Состояние", "state", is_sortable=True),
        Column("restarts", "Restarts", "Перезапуски", "number", is_sortable=True),
        Column("since", "Since", "С", "moment", is_sortable=True),
        Column("host", "Host", "Узел", is_sortable=True),
        Column("pid", "Process ID", "PID", "id", is_sortable=True),
        Column("error", "Error", "Ошибка"),
    ),
    (
        Filter("search", "Search", "Поиск", columns=("name", "state", "host", "error"),
               is_search=True),
    ),
    is_descending=False,
)  # fmt: skip

SESSIONS = Resource(
    "console.sessions", "session",
    "(select application || '/' || state as id, a.* from ("
    " select coalesce(nullif(application_name, ''), '-') as application,"
    " coalesce(state, '-') as state, count(*) as count,"
    " extract(epoch from max(clock_timestamp() - xact_start))::float8 as oldest_age"
    " from pg_stat_activity where datname = current_database()"
    " and backend_type = 'client backend' group by 1, 2) a)",
    "List the sessions of this database by program and state.",
    (
        Column("id", "Session", "Соединение", is_listed=False),
        Column("application", "Program", "Программа", is_sortable=True),
        Column("state", "State", "Состояние", "state"),
        Column("count", "Sessions", "Соединения", "number", is_sortable=True),
        Column("oldest_age", "Oldest transaction", "Старейшая транзакция", "duration",
               is_sortable=True),
    ),
    (Filter("search", "Search", "Поиск", columns=("application", "state"), is_search=True),),
    is_descending=False,
)  # fmt: skip
