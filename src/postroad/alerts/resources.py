"""What operators can list and do about alerts; see `postroad.operate`."""

from dataclasses import replace

from postroad.alerts import operations
from postroad.alerts.errors import AlertNotFound
from postroad.operate import Action, Column, Filter, Resource

SEVERITIES = ("info", "warning", "error", "critical")

_MUTE = (
    Column("muted_until", "Muted until", "Без уведомлений до", "moment"),
    Column("muted_by", "Muted by", "Кто отключил", is_listed=False),
    Column("mute_reason", "Reason", "Причина", is_listed=False),
)

ALERTS = Resource(
    "alerts.alerts", "alert",
    "(select a.*, h.muted_until is not null as is_muted, h.muted_until, h.muted_by, h.mute_reason"
    " from alerts.alert_list a left join alerts.handled h on h.key = a.key)",
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
        Column("acked_by", "Taken by", "Кто занимается"),
        Column("told", "Sent to", "Отправлено", "list"),
        Column("cleared_at", "Cleared", "Снято", "moment"),
        Column("is_muted", "Muted", "Без уведомлений", "boolean", is_listed=False),
        *_MUTE,
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

HANDLED = Resource(
    "alerts.handled", "problem", "alerts.handled",
    "List the problems that somebody has taken or muted.",
    (
        Column("key", "Key", "Ключ", "code"),
        Column("owner", "Taken by", "Кто занимается"),
        Column("owned_at", "Taken", "Взято", "moment"),
        *_MUTE[:2],
        replace(_MUTE[2], is_listed=True),
    ),
    key="key", is_descending=False, example="postroad alerts handled",
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
OWN = Action(
    operations.own, "{key} {be} taken by {owner}", ALERTS, "Take", "Взять в работу", needs=("by",),
    columns={"key": "key"}, when={"cleared_at": (None,), "acked_at": (None,)},
)  # fmt: skip
MUTE = Action(
    operations.mute, "{key} {be} muted until {until}", ALERTS, "Mute", "Не оповещать",
    needs=("by",), columns={"key": "key"}, when={"is_muted": (False, None)},
)  # fmt: skip
UNMUTE = Action(
    operations.unmute, "{key} {be} no longer muted", ALERTS, "Unmute", "Оповещать снова",
    result="is_changed", unchanged="{key} was not muted", columns={"key": "key"},
    when={"is_muted": (True,)},
)  # fmt: skip
HANDLING = (OWN, MUTE, UNMUTE)
RETRY = Action(
    operations.retry, "it will be tried", NOTICES, "Retry", "Повторить", result="is_tried",
    unchanged="there is nothing to try", when={"state": ("waiting", "given_up")}, is_bulk=True,
)  # fmt: skip
