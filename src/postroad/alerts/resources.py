"""What operators can list and do about alerts; see `postroad.operate`."""

from __future__ import annotations

from postroad.alerts import operations
from postroad.alerts.errors import AlertNotFound
from postroad.operate import Action, Column, Filter, Resource

SEVERITIES = ("info", "warning", "error", "critical")

ALERTS = Resource(
    "alerts.alerts", "alert", "alerts.alert_list",
    "List alerts, the latest first: those that are open, or all.",
    (
        Column("id", "Id", "Номер", "id", is_listed=False, index="alert_pkey"),
        Column("severity", "Severity", "Важность", "state"),
        Column("key", "Key", "Ключ", "code"),
        Column("title", "Alert", "Оповещение"),
        Column("body", "Text", "Текст", is_listed=False),
        Column("room", "Component", "Компонент"),
        Column("count", "Times", "Раз", "number", is_sortable=True, is_nullable=False),
        Column("raised_at", "Since", "С", "moment", is_sortable=True, is_nullable=False),
        Column("last_at", "Last", "Последнее", "moment", is_sortable=True, is_nullable=False),
        Column("acked_at", "Acknowledged", "Принято", "moment", is_listed=False),
        Column("acked_by", "Acknowledged by", "Кто принял"),
        Column("told", "Sent to", "Отправлено", "list"),
        Column("cleared_at", "Cleared", "Снято", "moment"),
    ),
    (
        Filter("show", "Show", "Показать", "Also cleared alerts, or open ones only.",
               choices=("open", "all"), condition="(%s = 'all' or r.cleared_at is null)",
               default="open"),
        Filter("severity", "Severity", "Важность", choices=SEVERITIES),
        Filter("component", "Component", "Компонент", "Only of this component.", columns=("room",)),
        Filter("search", "Search", "Поиск", "A part of the title, text, key or component.",
               columns=("title", "body", "key", "room"), is_search=True),
    ),
    # A report is visible as soon as its transaction has committed.
    prepare="select alerts.fold()", label="title", example="postroad alerts list --all --json",
    missing=AlertNotFound,
)  # fmt: skip

CHANNELS = Resource(
    "alerts.channels", "channel", "alerts.channels()",
    "List channels with their notices and their last error.",
    (
        Column("name", "Channel", "Канал"),
        Column("kind", "Kind", "Вид"),
        Column("least_severity", "From severity", "Начиная с важности", "state"),
        Column("is_active", "Configured", "Настроен", "boolean", is_listed=False),
        Column("sent", "Sent", "Отправлено", "number"),
        Column("waiting", "Waiting", "Ждут", "number"),
        Column("given_up", "Given up", "Не отправлено", "alarm"),
        Column("last_sent_at", "Last", "Последнее", "moment"),
        Column("failing_since", "Failing since", "Ошибки с", "moment", is_listed=False),
        Column("error", "Error", "Ошибка"),
    ),
    key="name", is_descending=False,
)  # fmt: skip

NOTICES = Resource(
    "alerts.notices", "notice", "alerts.notice_list",
    "List notices, sent or waiting, the latest first; with every attempt in --json.",
    (
        Column("id", "Notice", "Сообщение", "id", index="notice_pkey"),
        Column("channel", "Channel", "Канал"),
        Column("kind", "Kind", "Вид"),
        Column("state", "State", "Состояние", "state"),
        Column("attempts", "Attempts", "Попытки", "number"),
        Column("created_at", "Created", "Создано", "moment", index="notice_created_idx",
               is_nullable=False),
        Column("due_at", "Due", "Срок", "moment", is_listed=False),
        Column("sent_at", "Sent", "Отправлено", "moment"),
        Column("error", "Error", "Ошибка"),
        Column("items", "Alerts", "Оповещения", "json", is_listed=False),
        Column("tries", "Attempts", "Попытки", "json", is_listed=False),
    ),
    (
        Filter("channel", "Channel", "Канал", "Only of this channel."),
        Filter("state", "State", "Состояние", choices=("waiting", "sending", "sent", "given_up")),
    ),
    example="postroad alerts notices --channel mail --json",
)  # fmt: skip

ACK = Action(
    operations.ack, "{acked} acknowledged", ALERTS, "Acknowledge", "Принять",
    columns={"keys": "key"}, when={"cleared_at": (None,), "acked_at": (None,)}, is_bulk=True,
)  # fmt: skip
RETRY = Action(
    operations.retry, "it will be tried", NOTICES, "Retry", "Повторить", result="is_tried",
    unchanged="there is nothing to try", when={"state": ("waiting", "given_up")}, is_bulk=True,
)  # fmt: skip
