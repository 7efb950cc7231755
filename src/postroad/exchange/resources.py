"""What operators of the exchange can list and do; see `postroad.operate`."""

from postroad.exchange import errors, operations, status
from postroad.operate import Action, Column, Filter, Journey, Resource

OPEN_STATES = ("STARTED", "READY_TO_COMMIT", "UNKNOWN", "CLEANUP", "FAILED")
PROCESS_STATES = (*OPEN_STATES, "DONE", "ABORTED", "CANCELLED")
MESSAGE_STATES = (
    "queued", "leased", "deferred", "parked", "unknown", "waiting", "done", "discarded",
    "uploaded", "prepared",
)  # fmt: skip

_DATABASE = Filter(
    "database", "Database", "База", "Only of this database.",
    offered="select id from exchange.database order by id limit 500",
)  # fmt: skip

DATABASES = Resource(
    "exchange.databases", "database", "exchange.database_list",
    "List databases with what waits in them.",
    (
        Column("id", "Database", "База"),
        Column("resolution", "Resolved by", "Кто разрешает", "word", is_sortable=True,
               help="Who resolves a process in doubt: the ERP's marker, or a person.",
               is_nullable=False),
        Column("policy", "After a failure", "После ошибки", "word", is_listed=False,
               help="Whether messages behind a parked one of the same sender continue or wait."),
        Column("queued", "Queued", "В очереди", "number", is_sortable=True, is_nullable=False),
        Column("leased", "In a process", "В процессе", "number", is_sortable=True,
               is_nullable=False),
        Column("deferred", "Deferred", "Отложено", "number", is_sortable=True, is_nullable=False),
        Column("parked", "Parked", "Остановлено", "alarm", is_sortable=True, is_nullable=False),
        Column("in_doubt", "In doubt", "Исход неизвестен", "alarm", is_sortable=True,
               is_nullable=False),
        Column("replies", "Replies", "Ответы", "number", is_sortable=True, is_nullable=False),
        Column("oldest_at", "Oldest", "Старейшее", "since", is_sortable=True),
        Column("process", "Process", "Процесс", "code", is_listed=False),
        Column("process_state", "Process", "Процесс", "state"),
        Column("committed_seq", "Last marker", "Последний маркер", "id", is_listed=False),
        Column("restored_at", "Restored", "Восстановлена", "moment", is_listed=False,
               help="Set when the database was restored to a state before its last marker."),
        Column("created_at", "Created", "Создана", "moment", is_listed=False, is_nullable=False),
    ),
    is_descending=False, example="postroad exchange databases list --sort parked --descending",
    missing=errors.DatabaseNotFound,
)  # fmt: skip

CLIENTS = Resource(
    "exchange.clients", "client", "exchange.client_list", "List clients, without their secrets.",
    (
        Column("id", "Client", "Клиент"),
        Column("is_admin", "Administrator", "Администратор", "boolean", is_nullable=False),
        Column("databases", "Databases", "Базы", "list", null="all",
               help="Databases that it has rights on; null for all."),
        Column("may_send", "Sends", "Отправляет", "boolean", is_nullable=False),
        Column("may_take", "Takes", "Забирает", "boolean", is_nullable=False),
        Column("recipients", "Also for", "Также за", "list", is_nullable=False),
        Column("created_at", "Created", "Создан", "moment", is_nullable=False),
    ),
    is_descending=False, example="postroad exchange clients list", missing=errors.ClientNotFound,
)  # fmt: skip

PROCESSES = Resource(
    "exchange.processes", "process", "exchange.process_list",
    "List processes, the latest first; or show one with its files and history.",
    (
        Column("number", "Number", "Номер", "id", is_listed=False,
               index="process_listed_idx"),
        Column("id", "Process", "Процесс", "code"),
        Column("database", "Database", "База", is_nullable=False),
        Column("recipient", "Recipient", "Получатель", is_nullable=False),
        Column("owner", "Instance", "Экземпляр", is_nullable=False),
        Column("state", "State", "Состояние", "state", is_nullable=False),
        Column("outcome", "Outcome", "Исход", "state", is_listed=False),
        Column("files", "Files", "Файлы", "number", is_nullable=False),
        Column("replies", "Replies", "Ответы", "number", is_nullable=False),
        Column("started_at", "Started", "Начат", "moment", is_nullable=False),
        Column("ready_at", "Ready", "Готов", "moment", is_listed=False),
        Column("ended_at", "Ended", "Закончен", "moment"),
        Column("expires_at", "Expires", "Истекает", "moment", is_listed=False),
        Column("tries", "Tries", "Попытки", "number", is_listed=False, is_nullable=False),
        Column("error", "Error", "Ошибка"),
        Column("trace", "Trace", "Трасса", "code", is_listed=False),
    ),
    (
        _DATABASE,
        Filter("state", "State", "Состояние", "Only in this state; `open`: not ended.",
               choices={"open": OPEN_STATES, **{state: (state,) for state in PROCESS_STATES}}),
    ),
    key="number", identity="id", example="postroad exchange processes --state open",
    detail=status.process,
    parts={
        "files": (
            Column("name", "File", "Файл"),
            Column("sender", "Sender", "Отправитель"),
            Column("folder", "Folder", "Папка"),
            Column("size", "Size", "Размер", "bytes"),
            Column("result", "Result", "Итог", "word"),
            Column("error", "Error", "Ошибка"),
        ),
    },
    missing=errors.ProcessNotFound,
    journey=Journey(
        (), ("id", "trace"), "started_at", until="ended_at", holder="owner", place="database",
        attempts="tries",
        next={
            "started": ("the instance prepares or rolls back", "экземпляр подготовит или откатит"),
            "ready_to_commit": ("the instance commits or rolls back",
                                "экземпляр подтвердит или откатит"),
            "unknown": ("resolved by the marker of the ERP", "исход определит маркер ERP"),
            "cleanup": ("the server moves its files", "сервер переносит файлы"),
        },
    ),
)  # fmt: skip

MESSAGES = Resource(
    "exchange.messages", "message", "exchange.message_list",
    "List messages and replies, the latest first.",
    (
        Column("number", "Number", "Номер", "id", is_listed=False, index="message_pkey"),
        Column("id", "Message", "Сообщение", "code"),
        Column("database", "Database", "База"),
        Column("kind", "Kind", "Вид", "word", is_listed=False),
        Column("sender", "Sender", "Отправитель"),
        Column("recipient", "Recipient", "Получатель"),
        Column("sequence", "Sequence", "Порядок", "id"),
        Column("order_number", "Order", "Очерёдность", "id", is_listed=False),
        Column("state", "State", "Состояние", "state"),
        Column("folder", "Folder", "Папка", is_listed=False),
        Column("file_name", "File", "Файл", "code", is_listed=False),
        Column("object", "Object", "Объект", "code", is_listed=False),
        Column("size", "Size", "Размер", "bytes"),
        Column("failures", "Failures", "Неудачи", "number", is_listed=False),
        Column("error", "Error", "Ошибка"),
        Column("process", "Process", "Процесс", "code", is_listed=False),
        Column("created_at", "Created", "Создано", "moment"),
        Column("finished_at", "Finished", "Завершено", "moment", is_listed=False),
        Column("trace", "Trace", "Трасса", "code", is_listed=False),
    ),
    (
        _DATABASE,
        Filter("state", "State", "Состояние", choices=MESSAGE_STATES),
        Filter("sender", "Sender", "Отправитель", "Only of this sender.", is_scan=True),
        Filter("recipient", "Recipient", "Получатель", "Only for this recipient.", is_scan=True),
        Filter("search", "Search", "Поиск", "A part of the id, sender, recipient or file name.",
               columns=("id", "sender", "recipient", "file_name"), is_search=True),
    ),
    key="number", label="id", example="postroad exchange messages --database sales --state parked",
    missing=errors.MessageNotFound,
    journey=Journey(
        ("id", "file_name"), ("trace", "process"), "created_at", until="finished_at",
        holder="process", place="database", attempts="failures",
        next={
            "queued": ("the next process takes it", "возьмёт следующий процесс"),
            "leased": ("its process commits or rolls back", "процесс подтвердит или откатит"),
            "deferred": ("queued again after a pause", "вернётся в очередь после паузы"),
            "parked": ("requeue or discard it", "верните в очередь или отклоните"),
            "unknown": ("resolved with its process", "исход определится вместе с процессом"),
            "waiting": ("its recipient fetches it", "заберёт получатель"),
        },
    ),
)  # fmt: skip

ROUTES = Resource(
    "exchange.routes", "route", "exchange.route", "List routes between the bus and the mailboxes.",
    (
        Column("id", "Route", "Маршрут"),
        Column("direction", "Direction", "Направление"),
        Column("queue", "Queue", "Очередь"),
        Column("database_id", "Database", "База"),
        Column("recipient", "Recipient", "Получатель"),
        Column("created_at", "Created", "Создан", "moment"),
    ),
    is_descending=False, example="postroad exchange routes list",
)  # fmt: skip

SERVERS = Resource(
    "exchange.servers", "server", "exchange.server_list", "List the servers that run.",
    (
        Column("epoch", "Generation", "Поколение", "id", is_nullable=False),
        Column("holder", "Server", "Сервер", "code", is_nullable=False,
               help="Host name and process id."),
        Column("started_at", "Started", "Запущен", "moment", is_nullable=False),
        Column("seen_at", "Reported", "Отметился", "since", is_nullable=False),
        Column("is_sweeper", "Sweeps", "Обслуживает", "boolean", is_nullable=False),
    ),
    key="epoch", is_descending=False, example="postroad exchange servers",
)  # fmt: skip

REQUEUE = Action(
    operations.requeue, "message {id} {be} queued again", MESSAGES, "Requeue", "Вернуть в очередь",
    columns={"id_": "id", "sender": "sender", "database": "database", "recipient": "recipient"},
    when={"state": ("parked", "deferred")}, is_bulk=True,
)  # fmt: skip
RESOLVE = Action(
    operations.resolve, "process {id} {be} resolved as {outcome}", PROCESSES, "Set the outcome",
    "Указать исход", needs=("by",), when={"state": OPEN_STATES}, is_danger=True,
)  # fmt: skip
RELEASE = Action(
    operations.release, "process {id} {be} released", PROCESSES, "Release", "Завершить",
    needs=("by",), when={"state": OPEN_STATES}, is_danger=True,
)  # fmt: skip
SHOWN_ONCE = "which is not shown again:\n\n  {token}\n"
RENEW = Action(
    operations.renew_client, "the new token of {id}, " + SHOWN_ONCE, CLIENTS, "Renew the token",
    "Сменить токен", name="renew", role="admin", is_danger=True, secrets=("token",),
)  # fmt: skip
ACTIONS = (
    REQUEUE, RESOLVE, RELEASE,
    Action(operations.add_database,
           "database {id} {be} known; its processes in doubt are resolved by: {resolution}",
           DATABASES, name="add"),
    Action(operations.add_client, "client {id} has this token, " + SHOWN_ONCE, CLIENTS, name="add"),
    Action(operations.change_client, "client {id} {be} changed", CLIENTS, name="change"),
    RENEW,
    Action(operations.remove_client, "client {id} {be} removed", CLIENTS, name="remove"),
    Action(operations.add_route, "route {id} {be} added", ROUTES, name="add"),
    Action(operations.remove_route, "route {id} {be} removed", ROUTES, name="remove",
           unchanged="there is no route {id}"),
)  # fmt: skip
