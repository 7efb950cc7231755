"""Lists and actions for operators of the bus; see `postroad.operate`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from postroad.bus import operations
from postroad.bus.browse import STATES, browse, find_messages
from postroad.bus.client import AsyncBus
from postroad.bus.errors import QueueNotFound, ScheduleNotFound

# They also belong to the lists and actions of the bus; see `postroad.console.api`.
from postroad.bus.saga_resources import CANCEL, RETRY, SAGAS, SETTLE, STUCK_SAGAS  # noqa: F401
from postroad.operate import (
    Action,
    Column,
    Filter,
    FilterInvalid,
    Journey,
    Page,
    Query,
    Resource,
)

MAX_DATA_CHARACTERS = 1_000
# The column with the time of each state of a message.
TIMES = {"delayed": "due_at", "leased": "leased_until", "dead": "died_at"}

QUEUES = Resource(
    "bus.queues",
    "queue",
    "mbus.queues",
    "List queues with their definitions.",
    (
        Column("queue", "Queue", "Очередь"),
        Column("payload", "Payload", "Содержимое", is_sortable=True, is_nullable=False),
        Column("ncons", "Ring segments", "Сегменты кольца", "number"),
        Column("consumers", "Consumers", "Подписчики", "list"),
        Column("mode", "Mode", "Режим", "state"),
        Column("segments", "Segments in use", "Занято сегментов", "number"),
        Column("is_roles_security_model", "Roles per queue", "Роли на очередь", "boolean"),
        Column("retain", "Retention", "Хранение", "duration", is_listed=False),
        Column("retain_size", "Retained at most", "Хранить не более", "bytes", is_listed=False),
        Column("retained", "Retained messages", "Хранится сообщений", "number", is_listed=False),
        Column("retained_bytes", "Retained size", "Занято", "bytes", is_listed=False),
        Column("retained_since", "Retained since", "Хранится с", "moment", is_listed=False),
        Column("track", "Business key", "Бизнес-ключ", is_listed=False),
        Column("schema", "Schema", "Схема", "json", is_listed=False),
        Column("created_at", "Created", "Создана", "moment", is_sortable=True, is_nullable=False),
    ),
    (
        Filter("payload", "Payload", "Содержимое", "Only with this payload type.",
               choices=("hstore", "jsonb", "text", "bytea")),
        Filter("search", "Search", "Поиск", "A part of the name.", ("queue",), is_search=True),
    ),
    key="queue",
    is_descending=False,
    example="postroad bus queues --json",
    missing=QueueNotFound,
)  # fmt: skip

_QUEUE = Filter("queue", "Queue", "Очередь", "Only of this queue.", of=QUEUES)
_NAMES = (
    _QUEUE,
    Filter("consumer", "Consumer", "Подписчик", "Only of this consumer."),
    Filter("search", "Search", "очередь или подписчик", "queue or consumer",
           ("queue", "consumer"), is_search=True),
)  # fmt: skip
_OF_CONSUMER = (
    Column("id", "Id", "Имя", is_listed=False),
    Column("queue", "Queue", "Очередь"),
    Column("consumer", "Consumer", "Подписчик"),
)
_PAUSE = (
    Column("paused_at", "Paused", "Приостановлен", "moment"),
    Column("paused_by", "Paused by", "Кто приостановил"),
    Column("pause_reason", "Reason", "Причина"),
)

_LIMITS = (
    Column("rate", "Rate limit, per second", "Предел, в секунду", "rate"),
    Column("burst", "Burst", "Разом после паузы", "number", is_listed=False),
    Column("concurrency", "Held at most", "Одновременно не более", "number"),
    Column("key", "Fair share by", "Поровну по ключу", "code"),
    Column("key_rate", "Rate limit per key", "Предел на ключ, в секунду", "rate", is_listed=False),
    Column("key_concurrency", "Held at most per key", "Одновременно на ключ не более", "number",
           is_listed=False),
    Column("limited_by", "Limited by", "Ограничивает", "word",
           help="The limit that keeps the consumer from taking now."),
)  # fmt: skip

CONSUMERS = Resource(
    "bus.consumers",
    "consumer",
    "(select queue || '/' || consumer as id, * from mbus.consumers)",
    "List the durable subscribers of one queue or of all.",
    (
        *_OF_CONSUMER,
        Column("selector", "Selector", "Селектор", "code"),
        Column("contract", "Contract", "Способ чтения"),
        Column("max_attempts", "Attempts", "Попытки", "number"),
        Column("backoff", "Backoff", "Пауза", "duration"),
        Column("backoff_max", "Longest backoff", "Наибольшая пауза", "duration"),
        Column("created_at", "Created", "Создан", "moment"),
        *_PAUSE,
        *_LIMITS,
    ),
    _NAMES,
    is_descending=False,
    example="postroad bus consumers orders",
)

FIGURES = Resource(
    "bus.consumer_figures",
    "consumer",
    "(select s.queue || '/' || s.consumer as id, s.*, c.selector, c.max_attempts,"
    " case when c.paused_at is not null then 'paused' when c.limited_by is not null then 'limited'"
    " else 'running' end as state, c.rate, case when c.rate > 0 then c.burst end as burst,"
    " c.concurrency, c.key, c.key_rate,"
    " c.key_concurrency, c.limited_by,"
    " case when not c.is_queue_paused then s.consumer end as paused_consumer,"
    " c.paused_at, c.paused_by, c.pause_reason"
    " from mbus.status s join mbus.consumers c using (queue, consumer))",
    "Show depth, age and rates of one queue or of all.",
    (
        *_OF_CONSUMER,
        Column("state", "State", "Состояние", "state"),
        Column("depth", "Depth", "Глубина", "number", is_sortable=True, is_nullable=False),
        Column("ready", "ready", "готово", "number", is_sortable=True, is_nullable=False),
        Column("delayed", "delayed", "отложено", "number", is_sortable=True, is_nullable=False),
        Column("blocked", "waiting", "ожидает", "number", is_sortable=True, is_nullable=False,
               help="Messages that wait for other messages."),
        Column("leased", "leased", "в работе", "number", is_sortable=True, is_nullable=False),
        Column("dmq", "Dead", "Недоставленные", "alarm", is_sortable=True, is_nullable=False),
        Column("posted_per_second", "Posted/s", "Отправлено/с", "rate", is_sortable=True),
        Column("consumed_per_second", "Consumed/s", "Обработано/с", "rate", is_sortable=True),
        Column("oldest_age", "Oldest", "Старейшее", "duration", is_sortable=True),
        Column("is_estimate", "Estimated", "Оценка", "boolean", is_listed=False),
        Column("died_per_second", "Died/s", "Недоставленные/с", "rate", is_listed=False),
        Column("expired_per_second", "Expired/s", "Истекло/с", "rate", is_listed=False),
        Column("rejected_per_second", "Rejected/s", "Возвращено/с", "rate", is_listed=False),
        Column("selector", "Selector", "Селектор", "code", is_listed=False),
        Column("max_attempts", "Attempts", "Попытки", "number", is_listed=False),
        *(replace(one, is_listed=False) for one in (*_PAUSE, *_LIMITS)),
        Column("paused_consumer", "Paused consumer", "Приостановленный подписчик", is_listed=False,
               help="Null if the whole queue is paused."),
    ),
    _NAMES,
    is_descending=False,
    example="postroad bus status orders",
)  # fmt: skip


HANDLING = Resource(
    "bus.handling",
    "consumer",
    "(select queue || '/' || consumer as id, * from mbus.handling)",
    "Show how long messages waited and were handled in this hour and the last.",
    (
        *_OF_CONSUMER,
        Column("handled", "Handled", "Обработано", "number", is_sortable=True, is_nullable=False),
        Column("failed", "Failures", "Сбои", "number", is_sortable=True, is_nullable=False),
        Column("wait_median", "Wait, median", "Ожидание, медиана", "duration", is_sortable=True),
        Column("wait_high", "Wait, 95%", "Ожидание, 95%", "duration", is_sortable=True),
        Column("handling_median", "Handling, median", "Обработка, медиана", "duration",
               is_sortable=True),
        Column("handling_high", "Handling, 95%", "Обработка, 95%", "duration", is_sortable=True),
        Column("attempts", "Attempts, mean", "Попыток в среднем", "rate"),
        Column("batch", "Batch size, mean", "Размер пакета в среднем", "rate"),
    ),
    _NAMES,
    is_descending=False,
    example="postroad bus handling orders",
)  # fmt: skip


class _Messages:
    """Reads the messages of one consumer in a state, without taking them."""

    async def page(self, resource: Resource, place: Any, query: Query) -> Page:
        """Read a page; a search stops after the same number of messages as in other lists."""
        names = {one: query.filters.get(one) for one in ("queue", "consumer", "state")}
        queue, consumer, state = names.values()
        if not queue or not consumer or state not in STATES:
            raise FilterInvalid("messages are listed per queue", hint="specify the queue")
        found = await browse(
            AsyncBus(place),
            queue,
            consumer,
            state,
            place=None if query.after is None else resource.start("id", query.after)[0],
            is_descending=query.is_descending,
            amount=query.limit,
            search=query.filters.get("search"),
            max_characters=MAX_DATA_CHARACTERS,
        )
        time = TIMES.get(state, "due_at")
        others = dict.fromkeys(set(TIMES.values()) - {time})
        rows = []
        for one in found.messages if state in query.when.get("state", STATES) else ():
            row = {**asdict(one), **others, **names, time: one.due_at, "id": one.place_of}
            rows.append({column.name: row[column.name] for column in resource.columns})
        last = found.next_place
        cursor = None if last is None else resource.cursor({"id": last}, "id")
        return Page(rows, cursor, is_partial=cursor is not None and len(rows) < query.limit)


MESSAGES = Resource(
    "bus.messages",
    "message",
    _Messages(),
    "List the messages of a consumer in one state, without taking them.",
    (
        Column("id", "Place", "Место", "id", is_listed=False),
        Column("iid", "Message", "Сообщение", "code"),
        Column("added", "Posted", "Отправлено", "moment"),
        Column("due_at", "Due", "Срок", "moment", is_listed=False),
        Column("leased_until", "Leased until", "Аренда до", "moment", is_listed=False),
        Column("died_at", "Died", "Время отказа", "moment", is_listed=False),
        Column("attempts", "Attempts", "Попытки", "number"),
        Column("error", "Error", "Ошибка"),
        Column("headers", "Headers", "Заголовки", "json", is_listed=False),
        Column("properties", "Properties", "Свойства", "json"),
        Column("size", "Size", "Размер", "bytes"),
        Column("data", "Data", "Данные", help="The beginning of the payload, as text."),
        Column("expires", "Expires", "Истекает", "moment", is_listed=False),
        Column("queue", "Queue", "Очередь", is_listed=False),
        Column("consumer", "Consumer", "Подписчик", is_listed=False),
        Column("state", "State", "Состояние", "state", is_listed=False),
    ),
    (
        _QUEUE,
        Filter("consumer", "Consumer", "Подписчик", "Whose messages; default: default.",
               default="default"),
        Filter("state", "State", "Состояние", "Their state; default: ready.", choices=STATES,
               default="ready"),
        Filter("search", "Search", "Поиск", "A part of the iid, headers, properties or data.",
               ("iid",), is_search=True),
    ),
    label="iid",
    is_descending=False,
    example="postroad bus messages orders --state leased",
    journey=Journey(
        (), ("iid", "trace", "correlation", "origin"), "added", until="due_at", place="consumer",
        attempts="attempts", find=find_messages,
        next={
            "ready": ("a worker takes it", "возьмёт обработчик"),
            "delayed": ("ready when it is due", "станет доступно в срок"),
            "waiting": ("ready when its predecessors are consumed", "ждёт предыдущих сообщений"),
            "leased": ("acked by its worker, or ready again when the lease ends",
                       "подтвердит обработчик, иначе вернётся по окончании аренды"),
            "dead": ("redrive or delete it", "верните в очередь или удалите"),
            "retained": ("consumed; replay it if needed", "обработано; можно повторить"),
        },
    ),
)  # fmt: skip

WORKERS = Resource(
    "bus.workers", "worker", "mbus.workers",
    "List the handlers of running workers, with the messages that each has leased.",
    (
        Column("id", "Worker", "Обработчик", "code", is_listed=False),
        *_OF_CONSUMER[1:],
        Column("state", "State", "Состояние", "state", is_sortable=True, is_nullable=False),
        Column("host", "Host", "Узел", is_sortable=True, is_nullable=False),
        Column("pid", "Process ID", "PID", "id", is_sortable=True, is_nullable=False),
        Column("mode", "Mode", "Режим", "word"),
        Column("concurrency", "Concurrency", "Параллельность", "number", is_sortable=True,
               is_nullable=False, help="Number of messages that it handles concurrently."),
        Column("holds", "Leased", "В работе", "number", is_sortable=True, is_nullable=False,
               help="Messages that it has leased; in mode transaction none are."),
        Column("started_at", "Started", "Запущен", "moment", is_sortable=True, is_nullable=False),
        Column("seen_at", "Reported", "Отметился", "since", is_sortable=True, is_nullable=False),
        Column("held", "Messages", "Сообщения", "json", is_listed=False),
    ),
    (
        *_NAMES[:2],
        Filter("holds", "Holds", "Держит", "Only the worker that holds this message, by its iid.",
               condition="r.held ? %s"),
        Filter("search", "Search", "Поиск", "A part of the queue, consumer or host.",
               ("queue", "consumer", "host"), is_search=True),
    ),
    is_descending=False, example="postroad bus workers orders",
)  # fmt: skip

DEAD = Resource(
    "bus.dead_messages",
    "dead message",
    "(select id, queue, consumer, iid, error, fingerprint, attempts, history, died_at, added,"
    " coalesce(headers::jsonb, '{}') as headers, coalesce(properties::jsonb, '{}') as properties,"
    " data from mbus.dead)",
    "List dead messages with their errors, the latest first.",
    (
        Column("id", "Number", "Номер", "id", is_listed=False, index="dmq_pkey"),
        Column("died_at", "Died", "Время отказа", "moment"),
        Column("queue", "Queue", "Очередь"),
        Column("consumer", "Consumer", "Подписчик"),
        Column("iid", "Message", "Сообщение", "code"),
        Column("attempts", "Attempts", "Попытки", "number"),
        Column("error", "Error", "Ошибка"),
        Column("fingerprint", "Group", "Группа", "code", is_listed=False),
        Column("data", "Data", "Данные"),
        Column("history", "History", "История", "json", is_listed=False),
        Column("added", "Posted", "Отправлено", "moment", is_listed=False),
        Column("headers", "Headers", "Заголовки", "json", is_listed=False),
        Column("properties", "Properties", "Свойства", "json", is_listed=False),
    ),
    (
        *_NAMES[:2],
        Filter("group", "Group", "Группа", "Only of this group, see dead-groups.",
               ("fingerprint",)),
        Filter("error_class", "Error class", "Класс ошибки", "Beginning of the error: KeyError.",
               condition="starts_with(r.error, %s)", is_scan=True, is_typed=True),
        Filter("property", "Property", "Свойство", "Only with this property: NAME=VALUE.",
               condition="(select r.properties ->> split_part(g, '=', 1) = substr(g, strpos(g, '=')"
               " + 1) from (values (%s::text)) v(g))", is_scan=True, is_typed=True),
        Filter("iid", "Message", "Сообщение", "Only of this message.",
               condition="r.id in (select d.id from (values (%s::text)) v(g) join mbus.node n on"
               " n.name = split_part(g, '@', 2) join mbus.queue q on q.name = split_part(g, '.', 1)"
               r" join mbus.dmq d on d.queue_id = q.id and d.number = substring(g from"
               r" '\.([0-9]{1,18})@')::bigint)"),
        Filter("older_than", "Older than", "Старше", "Dead for at least this long: 2 hours.",
               condition="r.died_at <= mbus.now() - %s::interval", is_scan=True, is_typed=True),
        Filter("newer_than", "Newer than", "Новее", "Dead for at most this long: 2 hours.",
               condition="r.died_at >= mbus.now() - %s::interval", is_scan=True, is_typed=True),
        Filter("died_before", "Died before", "Отказ до", "Dead since this time or longer.",
               condition="r.died_at <= %s::timestamptz", is_scan=True),
        Filter("search", "Search", "Поиск", "A part of the message's iid or error.",
               ("iid", "error"), is_search=True),
    ),
    label="iid",
    example="postroad bus dmq orders --limit 10",
)  # fmt: skip

DEAD_GROUPS = Resource(
    "bus.dead_groups",
    "group of dead messages",
    "(select concat_ws('/', queue, consumer, fingerprint) as id, * from mbus.dead_groups())",
    "Count dead messages by consumer and error; numbers, ids and quoted values do not matter.",
    (
        *_OF_CONSUMER,
        Column("fingerprint", "Group", "Группа", "code"),
        Column("error", "Error", "Ошибка"),
        Column("messages", "Messages", "Сообщения", "alarm", is_sortable=True, is_nullable=False),
        Column("first_at", "First", "Первое", "moment", is_sortable=True, is_nullable=False),
        Column("last_at", "Last", "Последнее", "moment", is_sortable=True, is_nullable=False),
        Column("trend", "Last 24 hours", "За 24 часа", "list", is_listed=False,
               help="Number that died in each of the last 24 hours."),
    ),
    (
        _QUEUE,
        Filter("search", "Search", "причина, очередь, подписчик", "reason, queue, consumer",
               ("queue", "consumer", "error"), is_search=True),
    ),
    is_descending=False,
    example="postroad bus dead-groups orders --sort messages --descending",
)  # fmt: skip

DEAD_ORIGINALS = Resource(
    "bus.dead_originals",
    "original",
    "(select id, queue, consumer, iid, edited_at, edited_by, died_at, error,"
    " coalesce(properties::jsonb, '{}') as properties, data from mbus.dead_originals)",
    "List messages as they were before they were edited and redriven, the latest first.",
    (
        Column("id", "Number", "Номер", "id", is_listed=False, index="dead_original_pkey"),
        Column("edited_at", "Edited", "Изменено", "moment"),
        Column("edited_by", "Edited by", "Кто изменил"),
        Column("consumer", "Consumer", "Подписчик"),
        Column("iid", "Message", "Сообщение", "code"),
        Column("error", "Error", "Ошибка"),
        Column("data", "Original data", "Исходные данные"),
        Column("properties", "Original properties", "Исходные свойства", "json"),
        Column("queue", "Queue", "Очередь", is_listed=False),
        Column("died_at", "Died", "Время отказа", "moment", is_listed=False),
    ),
    (*_NAMES[:2], Filter("iid", "Message", "Сообщение", "Only of this message.")),
    example="postroad bus dead-originals orders",
)

WAITS = Resource(
    "bus.waits",
    "wait",
    # A message that several consumers get is listed once.
    "(select concat_ws(' ', iid, before_iid) as id, queue, iid, added, before_queue, before_iid,"
    " max(before_state) as before_state from mbus.waits(amt => 1000) group by 1, 2, 3, 4, 5, 6)",
    "List messages that wait for other messages, of the latest 1,000.",
    (
        Column("id", "Id", "Имя", is_listed=False),
        Column("iid", "Message", "Сообщение", "code"),
        Column("queue", "Queue", "Очередь", is_listed=False),
        Column("before_iid", "Waits for", "Ожидает", "code"),
        Column("before_queue", "Waits for queue", "Ожидает очередь", is_listed=False),
        Column("before_state", "State", "Состояние", "state"),
        Column("added", "Posted", "Отправлено", "moment", is_sortable=True, is_nullable=False),
    ),
    (
        _QUEUE,
        Filter("before_state", "State", "Состояние", choices=("pending", "reserved", "done")),
        Filter("search", "Search", "Поиск", "message", ("iid", "before_iid"), is_search=True),
    ),
    is_descending=False,
)

RUNS = (
    Column("planned_at", "Planned", "По плану", "moment"),
    Column("ran_at", "Ran", "Выполнено", "moment"),
    Column("outcome", "Outcome", "Результат", "state"),
    Column("iid", "Message", "Сообщение", "code"),
    Column("error", "Error", "Ошибка"),
)

SCHEDULES = Resource(
    "bus.schedules",
    "schedule",
    "(select s.*, coalesce((select jsonb_agg(to_jsonb(r) - '{id,schedule}'::text[] order by r.id"
    " desc) from mbus.schedule_run r where r.schedule = s.schedule), '[]') as runs"
    " from mbus.schedules s)",
    "List schedules with their next and last runs.",
    (
        Column("schedule", "Schedule", "Расписание"),
        Column("timing", "When", "Когда", "code"),
        Column("timezone", "Time zone", "Часовой пояс"),
        Column("queue", "Queue", "Очередь"),
        Column("state", "State", "Состояние", "state"),
        Column("next_at", "Next run", "Следующий запуск", "moment", is_sortable=True),
        Column("last_at", "Last run", "Последний запуск", "moment", is_sortable=True),
        Column("last_outcome", "Outcome", "Результат", "state"),
        Column("last_error", "Error", "Ошибка"),
        Column("missed", "Missed runs", "Пропущенные запуски", "word", is_listed=False),
        *(replace(one, is_listed=False) for one in _PAUSE),
        Column("data", "Data", "Данные", "code", is_listed=False),
        Column("created_at", "Created", "Создано", "moment", is_listed=False),
        Column("runs", "Runs", "Запуски", "number", is_listed=False),
    ),
    (
        _QUEUE,
        Filter("state", "State", "Состояние", choices=("active", "paused")),
        Filter("search", "Search", "Поиск", "A part of the name.", ("schedule",), is_search=True),
    ),
    key="schedule",
    is_descending=False,
    example="postroad bus schedules list --state paused",
    advice="add one with: postroad bus schedules add",
    parts={"runs": RUNS},
    missing=ScheduleNotFound,
)

SCHEDULE_ACTIONS = (
    Action(operations.run_now, "message {result} {be} posted", SCHEDULES, "Run now",
           "Запустить сейчас", name="run-now"),
    Action(operations.pause_schedule, "schedule {name} {be} paused", SCHEDULES, "Pause",
           "Приостановить", name="pause", result="is_changed", needs=("by",),
           unchanged="schedule {name} was already paused", when={"state": ("active",)}),
    Action(operations.resume_schedule, "schedule {name} {be} resumed", SCHEDULES, "Resume",
           "Возобновить", name="resume", result="is_changed",
           unchanged="schedule {name} was not paused", when={"state": ("paused",)}),
    Action(operations.schedule, "schedule {name} {be} created", SCHEDULES, name="add",
           secrets=("data",)),
    Action(operations.unschedule, "schedule {name} {be} removed", SCHEDULES, name="remove",
           result="is_changed", unchanged="there was no schedule {name}"),
)  # fmt: skip

REPLAYS = Resource(
    "bus.replays",
    "replay",
    "mbus.replays",
    "List replays and how far they are, the latest first.",
    (
        Column("id", "Replay", "Номер", "id"),
        Column("queue", "Queue", "Очередь"),
        Column("consumer", "Consumer", "Подписчик"),
        Column("state", "State", "Состояние", "state"),
        Column("messages", "Posted", "Отправлено", "number"),
        Column("progress", "Progress", "Готовность", "rate",
               help="The part of the stored messages that was read: 1 is all."),
        Column("since", "Since", "С", "moment", is_listed=False),
        Column("until", "Until", "По", "moment", is_listed=False),
        Column("selector", "Selector", "Селектор", "code", is_listed=False),
        Column("rate", "Per second", "В секунду", "number", is_listed=False),
        Column("is_start", "Consumer begins", "Начало подписчика", "boolean", is_listed=False),
        Column("started_at", "Started", "Начат", "moment"),
        Column("started_by", "Started by", "Кто начал"),
        Column("finished_at", "Ended", "Окончен", "moment"),
        Column("error", "Error", "Ошибка"),
    ),
    (
        *_NAMES[:2],
        Filter("state", "State", "Состояние",
               choices=("waiting", "running", "stopped", "finished")),
    ),
    example="postroad bus replays list --state running",
    advice="start one with: postroad bus replay",
)  # fmt: skip

REPLAY = Action(operations.replay, "{what} {be} queued", FIGURES, "Replay", "Повторить",
                result="replay", counts="messages", needs=("by", "is_dry_run"),
                columns={"queue": "queue", "consumer": "consumer"},
                asked=("since", "until", "selector", "rate"))  # fmt: skip
REPLAY_ACTIONS = (
    Action(operations.stop_replay, "replay {id} {be} stopped", REPLAYS, "Stop", "Остановить",
           name="stop", result="is_changed", needs=("by",), unchanged="replay {id} had ended",
           when={"state": ("waiting", "running")}),
    Action(operations.continue_replay, "replay {id} {be} continued", REPLAYS, "Continue",
           "Продолжить", name="continue", result="is_changed",
           unchanged="replay {id} was not stopped", when={"state": ("stopped",)}),
)  # fmt: skip

CREATE = Action(operations.create, "{subject} {would}created")
DROP = Action(operations.drop, "{subject} {would}dropped", loss="messages_lost",
              question="{messages_lost} messages will be lost. Continue?")  # fmt: skip
TRACK = Action(operations.track, "queue {queue} {be} changed", QUEUES, "Change business key",
               "Изменить бизнес-ключ", present={"field": "track"})  # fmt: skip
SCHEMA = Action(operations.schema, "the schema of queue {queue} {be} changed", QUEUES,
                "Change schema", "Изменить схему", present={"schema": "schema"})  # fmt: skip
RETAIN = Action(operations.retain, "the retention of queue {queue} {be} changed", QUEUES,
                "Change retention", "Изменить хранение",
                present={"period": "retain", "size": "retain_size"})  # fmt: skip
PAUSE = Action(
    operations.pause,
    "queue {queue} {be} paused",
    FIGURES,
    "Pause",
    "Приостановить",
    result="is_changed",
    unchanged="queue {queue} was already paused",
    needs=("by",),
    columns={"queue": "queue", "consumer": "consumer"},
    when={"state": ("running", "limited")},
)
LIMIT = Action(
    operations.limit,
    "the limits of consumer {consumer} of queue {queue} {be} set",
    FIGURES,
    "Limit",
    "Ограничить",
    name="limit",
    columns={"queue": "queue", "consumer": "consumer"},
    present={one.name: one.name for one in _LIMITS[:-1]},
    sets_all=True,
)
RESUME = Action(
    operations.resume,
    "queue {queue} {be} resumed",
    FIGURES,
    "Resume",
    "Возобновить",
    result="is_changed",
    unchanged="queue {queue} was not paused",
    columns={"queue": "queue", "consumer": "paused_consumer"},
    when={"state": ("paused",)},
)
REDRIVE = Action(operations.redrive, "{redriven} {be} redriven", result="redriven")
REDRIVE_DEAD = Action(operations.redrive_dead, "{count} {be} redriven", DEAD, "Redrive",
                      "Вернуть в очередь", name="redrive", is_bulk=True)  # fmt: skip
MOVE_DEAD = Action(operations.move_dead, "{count} {be} moved to {destination}", DEAD, "Move",
                   "Переместить", name="move", is_bulk=True, offered={"destination": QUEUES},
                   is_danger=True)  # fmt: skip
PURGE_DEAD = Action(operations.purge_dead, "{count} {be} deleted", DEAD, "Delete", "Удалить",
                    name="purge", is_bulk=True, is_danger=True,
                    question="The dead messages are lost. Continue?")  # fmt: skip
EDIT_DEAD = Action(operations.edit_dead, "{count} {be} redriven", DEAD, name="edit",
                   unchanged="message {iid} is not dead", needs=("by",),
                   secrets=("data", "properties"))  # fmt: skip
_OF_MESSAGE = {"iids": "iid", "queue": "queue", "consumer": "consumer"}
REDRIVE_MESSAGES = Action(operations.redrive_messages, "{count} {be} redriven", MESSAGES,
                          "Redrive", "Вернуть в очередь", name="redrive", columns=_OF_MESSAGE,
                          when={"state": ("dead",)})  # fmt: skip
MOVE_MESSAGES = Action(operations.move_messages, "{count} {be} moved to {destination}", MESSAGES,
                       "Move", "Переместить", name="move", when={"state": STATES[:-1]},
                       columns={**_OF_MESSAGE, "state": "state"}, is_danger=True,
                       offered={"destination": QUEUES})  # fmt: skip
PURGE_MESSAGES = Action(operations.purge_messages, "{count} {be} deleted", MESSAGES, "Purge",
                        "Удалить", name="purge", columns={**_OF_MESSAGE, "state": "state"},
                        is_danger=True)  # fmt: skip
TAKE = Action(operations.take, "{iid} {be} removed", MESSAGES, "Remove", "Удалить",
              columns={"iid": "iid"}, when={"state": STATES[:-1]}, is_danger=True)  # fmt: skip
DEAD_ACTIONS = (REDRIVE_DEAD, MOVE_DEAD, PURGE_DEAD, EDIT_DEAD)
QUEUE_ACTIONS = (CREATE, DROP, PAUSE, RESUME, LIMIT, REDRIVE, RETAIN, REPLAY, TRACK, SCHEMA)
