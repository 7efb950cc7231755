"""What operators of the intake can list and do; see `postroad.operate`."""

from functools import partial

from postroad.intake import operations, status
from postroad.intake.errors import FileNotFound, ServerNotFound
from postroad.intake.status import FILE_STATUSES
from postroad.operate import Action, Column, Filter, Journey, Resource

# Columns that only the page of a row shows, those of them that are never null, and others.
_hidden = partial(Column, is_listed=False)
_detail = partial(_hidden, is_nullable=False)
_given = partial(Column, is_nullable=False)
_sorted = partial(_given, is_sortable=True)

SERVERS = Resource(
    "intake.servers", "server", "intake.server_status",
    "List SFTP servers with their state and their files by status.",
    (
        Column("name", "Server", "Сервер"),
        _detail("id", "Id", "Номер", "id"),
        _sorted("host", "Host", "Хост"),
        _detail("port", "Port", "Порт", "id"),
        _detail("username", "User", "Пользователь"),
        _sorted("directory", "Folder", "Папка"),
        _given("is_active", "Active", "Включён", "boolean"),
        _sorted("status", "State", "Состояние", "state"),
        _sorted("waiting", "Waiting", "Ждут", "number"),
        _sorted("moving", "In transfer", "Передаются", "number"),
        _sorted("completed", "Completed", "Принято", "number"),
        _sorted("failed", "Failed", "С ошибкой", "alarm"),
        Column("last_scan_at", "Last scan", "Последний опрос", "moment", is_sortable=True),
        Column("problem", "Problem", "Проблема"),
        _detail("failures", "Failures in a row", "Ошибок подряд", "number"),
        _hidden("retry_at", "Next attempt", "Следующая попытка", "moment"),
        _hidden("last_scan", "Result of the last scan", "Итог последнего опроса", "json"),
        _detail("next_scan_at", "Next scan", "Следующий опрос", "moment"),
        _hidden("host_key", "Host key", "Ключ сервера", "code"),
        _hidden("seen_host_key", "Changed host key", "Новый ключ сервера", "code"),
        _detail("trusts_first_key", "Trusts the first host key", "Доверяет первому ключу сервера",
                "boolean"),
        _hidden("scan_interval", "Scan interval", "Интервал опроса", "duration",
                help="None: the setting of the intake."),
        _detail("include", "Included", "Принимаются", "list"),
        _detail("exclude", "Excluded", "Исключаются", "list"),
        _detail("ignore", "Ignored", "Пропускаются", "list"),
        _detail("is_case_sensitive", "Case-sensitive", "Учитывать регистр", "boolean"),
        _detail("max_depth", "Levels of subfolders", "Глубина вложенных папок", "number"),
        _detail("follows_links", "Follows links", "Переходить по ссылкам", "boolean"),
        _detail("stable_checks", "Identical listings", "Одинаковых списков", "number",
                help="Identical listings required before a file is imported."),
        _detail("minimum_age", "Minimum age", "Минимальный возраст", "duration"),
        _hidden("done_suffix", "Suffix of done-files", "Суффикс файла готовности", "code"),
        _detail("after_import", "After import", "После приёма", "word"),
        _hidden("move_to", "Moved to", "Куда переносить", "code"),
        _detail("transfer_mode", "Transfer mode", "Способ передачи", "word"),
        _detail("max_connections", "Connections", "Соединений", "number"),
        _detail("created_at", "Created", "Создан", "moment"),
        _detail("updated_at", "Changed", "Изменён", "moment"),
        _detail("looks", "Identical listings", "Одинаковых списков", "number",
                replaced_by="stable_checks"),
        _detail("way", "Transfer mode", "Способ передачи", replaced_by="transfer_mode"),
    ),
    (
        Filter("status", "State", "Состояние", choices=status.SERVER_STATUSES),
        Filter("search", "Search", "Поиск", "A part of the name, host, user, folder or problem.",
               columns=("name", "host", "username", "directory", "problem"), is_search=True),
    ),
    key="name", is_descending=False, example="postroad intake servers list --json",
    detail=status.server, missing=ServerNotFound,
)  # fmt: skip

FILES = Resource(
    "intake.files", "file", "intake.file_list", "List files, the latest first.",
    (
        Column("id", "Id", "Номер", "id", index="imported_files_pkey"),
        _given("filename", "File", "Файл"),
        _given("server", "Server", "Сервер"),
        _detail("server_id", "Server id", "Номер сервера", "id"),
        _given("status", "State", "Состояние", "state", index="imported_files_by_status_idx"),
        _given("version", "Version", "Версия", "number"),
        _given("filesize", "Size", "Размер", "bytes"),
        _given("bytes_done", "Transferred", "Передано", "bytes"),
        _given("attempts", "Attempts", "Попытки", "number"),
        _given("created_at", "Found", "Найден", "moment"),
        Column("completed_at", "Completed", "Принят", "moment"),
        _detail("updated_at", "Changed", "Изменён", "moment"),
        Column("error_message", "Error", "Ошибка"),
        _detail("path_hex", "Path, as bytes", "Путь в байтах", "code"),
        _detail("mtime", "Modification time", "Время изменения", "id",
                help="As the server reports it, in seconds since 1970."),
        _hidden("file_hash", "SHA-256", "SHA-256", "code"),
        _hidden("store", "Store", "Хранилище"),
        _hidden("object_key", "Key in the store", "Ключ в хранилище", "code"),
        _hidden("notice", "Notice", "Уведомление", "code",
                help="The iid of its message in the queue file_events."),
        _hidden("cleanup", "Cleanup at the source", "Очистка источника", "word"),
        _detail("next_try_at", "Next attempt", "Следующая попытка", "moment"),
        _hidden("worker", "Worker", "Рабочий процесс", "code"),
        _hidden("lease_until", "Lease until", "Аренда до", "moment"),
        _hidden("trace", "Trace", "Трасса", "code"),
    ),
    (
        Filter("status", "State", "Состояние", choices=FILE_STATUSES),
        Filter("server", "Server", "Сервер", "Only of this server, by name or id.",
               offered="select name from intake.sftp_servers order by name limit 500",
               condition="%s in (r.server, r.server_id::text)", is_scan=True),
        Filter("name", "Name", "Имя", "A part of the file name.",
               condition="strpos(lower(r.filename), lower(%s)) > 0", is_scan=True),
        Filter("search", "Search", "Поиск", "A part of the file name or of the error.",
               columns=("filename", "error_message"), is_search=True),
    ),
    label="filename",
    parts={
        "history": (
            Column("at", "At", "Когда", "moment"),
            Column("status", "State", "Состояние", "state"),
            Column("note", "Note", "Примечание"),
        )
    },
    example="postroad intake files list --status failed --server acme", detail=status.file,
    missing=FileNotFound,
    journey=Journey(
        ("filename",), ("trace",), "created_at", until="completed_at", holder="worker",
        place="server", attempts="attempts", error="error_message",
        next={
            "discovered": ("a worker transfers it", "передаст рабочий процесс"),
            "downloading": ("stored, then a notice is posted", "сохранится, затем уведомление"),
            "uploading_to_minio": ("stored, then a notice is posted",
                                   "сохранится, затем уведомление"),
            "failed": ("retry or skip it", "повторите или пропустите"),
            "completed": ("its notice is posted", "уведомление отправлено"),
        },
    ),
)  # fmt: skip

TRANSFERS = Resource(
    "intake.transfers", "transfer", "intake.transfers",
    "List running transfers with their progress.",
    (
        _hidden("id", "Id", "Номер", "id"),
        _given("filename", "File", "Файл"),
        _given("server", "Server", "Сервер"),
        _given("status", "State", "Состояние", "state"),
        _given("bytes_done", "Progress", "Готово", "bytes"),
        _given("filesize", "Size", "Размер", "bytes"),
        _given("attempts", "Attempts", "Попытки", "number"),
        _detail("worker", "Worker", "Рабочий процесс", "code"),
        _detail("updated_at", "Changed", "Изменена", "moment"),
    ),
    is_descending=False, label="filename", example="postroad intake transfers --json",
)  # fmt: skip

STORES = Resource(
    "intake.stores", "store", "intake.store_state",
    "List stores that have failed, with their state.",
    (
        Column("store", "Store", "Хранилище"),
        Column("failures", "Failures in a row", "Ошибок подряд", "alarm"),
        Column("problem", "Problem", "Проблема"),
        Column("retry_at", "Next attempt", "Следующая попытка", "moment"),
        Column("updated_at", "Changed", "Изменено", "moment"),
    ),
    key="store", is_descending=False, example="postroad intake stores",
)  # fmt: skip

RETRY = Action(
    operations.retry, "{count} files {be} retried", FILES, "Retry", "Повторить",
    when={"status": ("failed",)}, is_bulk=True,
)  # fmt: skip
SKIP = Action(
    operations.skip, "{count} files {be} skipped", FILES, "Skip", "Пропустить",
    when={"status": (*FILE_STATUSES[:4], "failed")}, is_danger=True, is_bulk=True,
)  # fmt: skip
REIMPORT = Action(
    operations.reimport, "{count} files {be} imported again", FILES, "Import again",
    "Принять ещё раз", when={"status": ("completed",)}, is_bulk=True,
)  # fmt: skip
PAUSE = Action(
    operations.pause_server, "server {name} {be} paused", SERVERS, "Pause", "Приостановить",
    name="pause", when={"is_active": (True,)},
)  # fmt: skip
RESUME = Action(
    operations.resume_server, "server {name} {be} resumed", SERVERS, "Resume", "Продолжить",
    name="resume", when={"is_active": (False,)},
)  # fmt: skip
TRUST = Action(
    operations.trust_host_key, "server {name} {be} trusted with {host_key}", SERVERS,
    "Trust the host key", "Доверять ключу сервера", name="trust",
)  # fmt: skip
REMOVE = Action(
    operations.delete_server, "server {server} {be} removed", SERVERS, "Delete", "Удалить",
    name="remove", question="Remove {server} and the journal of its files?", is_danger=True,
)  # fmt: skip
# Not a command: only the console has the vault, see `postroad intake servers change`.
RENEW = Action(
    operations.renew_credentials, "server {server} {be} given new credentials", SERVERS,
    "Renew the credentials", "Сменить учётные данные", name="renew", needs=("vault",),
    is_danger=True, secrets=("password", "public_key"),
)  # fmt: skip
ACTIONS = (RETRY, SKIP, REIMPORT, PAUSE, RESUME, TRUST, REMOVE)
