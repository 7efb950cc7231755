"""The steps in which the server is killed, and the way to the end from each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tools.crash_table.world import Point, World

__all__ = ["SCENARIOS", "Scenario"]

BIG = b"b" * 100_000
DIGEST = hashlib.sha256(BIG).hexdigest()
REPLIES = [
    {"name": "small", "recipient": "phone", "reply_to": "m1", "body": {"ok": True}},
    {"name": "big", "recipient": "phone", "sha256": DIGEST},
]


@dataclass(frozen=True)
class Scenario:
    """`before` without faults, `during` under injection, `after` to the end.

    A recovery has no `during`: `before` leaves a server that was killed, and its start is injected.
    """

    name: str
    before: Callable[[World], Any]
    during: Callable[[World, Any], Any]
    after: Callable[[World, Any], None]
    settings: dict[str, Any] = field(default_factory=dict)
    is_recovery: bool = False


def _send(world: World, id_: str = "m1") -> None:
    status, answer = world.call(
        "phone", "POST", "/messages", {"id": id_, "database": "sales", "body": {"id": id_}}
    )
    assert status in (200, 201), answer


def _start(world: World, attempt: str = "a1", **more: Any) -> dict[str, Any]:
    body = {"database": "sales", "attempt": attempt, **more}
    status, answer = world.call("erp", "POST", "/processes", body)
    assert status == 200, answer
    return dict(answer)


def _begin(world: World, attempt: str = "a1") -> dict[str, Any]:
    answer = _start(world, attempt)
    assert answer["status"] == "STARTED", answer
    return dict(answer["process"])


def _choose(world: World, process: dict[str, Any]) -> dict[str, Any]:
    names = [file["name"] for file in process["files"]]
    path = f"/processes/{process['id']}/files"
    assert world.call("erp", "PUT", path, {"files": names}) == (200, {"status": "OK"})
    return process


def _upload(world: World, process: dict[str, Any]) -> dict[str, Any]:
    path = f"/processes/{process['id']}/replies/big?recipient=phone"
    status, answer = world.call("erp", "PUT", path, raw=BIG)
    assert (status, answer["status"]) == (200, "OK"), answer
    return process


def _prepare(world: World, process: dict[str, Any]) -> dict[str, Any]:
    path = f"/processes/{process['id']}/prepare"
    answer = world.call("erp", "POST", path, {"replies": REPLIES})
    assert answer == (200, {"status": "OK"}), answer
    return process


def _end(verb: str, **body: Any) -> Callable[[World, dict[str, Any]], dict[str, Any]]:
    def end(world: World, process: dict[str, Any]) -> dict[str, Any]:
        answer = world.call("erp", "POST", f"/processes/{process['id']}/{verb}", body)
        assert answer == (200, {"status": "OK"}), answer
        return process

    return end


def _fetch(world: World, _: Any = None) -> None:
    """The recipient gets each reply once and acknowledges it."""
    _, page = world.call("phone", "GET", "/messages")
    assert sorted(reply["id"] for reply in page["items"]) == ["big", "small"], page
    for reply in page["items"]:
        _ack(world, reply["id"])
    assert world.call("phone", "GET", "/messages")[1]["items"] == []


def _ack(world: World, id_: str) -> None:
    assert world.call("phone", "DELETE", f"/messages/{id_}") == (200, {"status": "OK"})


def _ready(world: World) -> dict[str, Any]:
    _send(world)
    return _prepare(world, _upload(world, _begin(world)))


def _committed(world: World) -> dict[str, Any]:
    process = _ready(world)
    world.erp_commit(process)
    return process


def _finish(world: World, process: dict[str, Any]) -> None:
    """From prepared to the end. A restart puts the process in doubt; the late commit settles it."""
    world.erp_commit(process)
    _end("commit")(world, process)
    _fetch(world)


def _again(world: World, _: Any = None) -> None:
    """A whole cycle under a new attempt."""
    process = _prepare(world, _upload(world, _begin(world, "again")))
    _finish(world, process)


def _settled(world: World, process: dict[str, Any]) -> None:
    """A process that timed out before it was ready is cancelled, and the work begins anew."""
    world.wait(
        f"select state = 'CANCELLED' from exchange.process where id = '{process['id']}'",
        "cancelled",
    )
    world.settings["started_timeout"] = "60s"
    world.stop()
    world.start()
    _again(world)


def _in_doubt(world: World) -> dict[str, Any]:
    process = _committed(world)
    world.stop()
    world.start()
    assert _start(world, "look")["status"] == "RESOLVE"
    return process


def _resolve(world: World, process: dict[str, Any]) -> dict[str, Any]:
    body = {"outcome": "COMMITTED"}
    answer = world.call("other", "POST", f"/processes/{process['id']}/resolve", body)
    assert answer == (200, {"status": "OK"}), answer
    return process


def _resolve_by_start(world: World, process: dict[str, Any]) -> dict[str, Any]:
    answer = _start(world, "asked", resolved={process["id"]: "COMMITTED"})
    assert answer["status"] == "IDLE", answer
    return process


def _whole(world: World) -> None:
    process = _committed(world)
    _end("commit")(world, process)
    _fetch(world)


def _age(world: World) -> None:
    world.rows(
        "update exchange.message set finished_at = now() - interval '1 year' where state = 'done'"
    )
    world.rows("update exchange.process set ended_at = now() - interval '1 year'")


def _grow_old(world: World, _: Any) -> None:
    _age(world)
    _forgotten(world, _)


def _started(world: World) -> dict[str, Any]:
    _send(world)
    return _begin(world)


def _expire(world: World, process: dict[str, Any]) -> dict[str, Any]:
    world.wait(
        f"select state <> 'STARTED' from exchange.process where id = '{process['id']}'", "timed out"
    )
    return process


def _doubt_by_time(world: World, process: dict[str, Any]) -> dict[str, Any]:
    world.wait(
        f"select state = 'UNKNOWN' from exchange.process where id = '{process['id']}'", "in doubt"
    )
    return process


def _nothing(world: World, _: Any = None) -> None:
    del world


def _killed_at(point: Point, step: Callable[[World, Any], Any]) -> Callable[[World, Any], Any]:
    """Kill the server within a step and leave it so."""

    def run(world: World, given: Any) -> Any:
        world.inject(point)
        world.is_left = True
        try:
            step(world, given)
        except ConnectionError:
            pass
        else:
            raise AssertionError(f"there is no {point}")
        finally:
            world.is_left = False
            world.disarm()
            world.pid = None
        return given

    return run


def _stopped(world: World) -> dict[str, Any]:
    process = _committed(world)
    world.stop()
    return process


def _half_taken_in(world: World) -> None:
    """A message whose row is there and whose file has its temporary name, and an orphan file."""
    _killed_at(Point("file", "renameat", 1), lambda world, _: _send(world))(world, None)
    (world.root / "sales" / "Messages" / ".new-orphan-1").write_bytes(b"torn")


def _half_committed(world: World) -> dict[str, Any]:
    return dict(_killed_at(Point("file", "renameat", 2), _end("commit"))(world, _committed(world)))


def _half_aborted(world: World) -> dict[str, Any]:
    return dict(_killed_at(Point("file", "unlinkat", 1), _end("abort"))(world, _ready(world)))


def _outdated(world: World) -> None:
    """Log is older than the retention when the server starts."""
    _whole(world)
    world.stop()
    _age(world)


def _taken_in(world: World, _: Any) -> None:
    """The sender repeats its message."""
    _send(world)
    _again(world)


def _committed_again(world: World, process: dict[str, Any]) -> None:
    _end("commit")(world, process)
    _fetch(world)


def _forgotten(world: World, _: Any) -> None:
    world.wait("select not exists (select from exchange.process)", "forgotten")
    world.effects.clear()


SCENARIOS = (
    Scenario("intake", _nothing, lambda world, _: _send(world), _again),
    Scenario(
        "API_1 start",
        _send,
        lambda world, _: _begin(world),
        lambda world, process: _finish(world, _prepare(world, _upload(world, process))),
    ),
    Scenario(
        "API_2 files",
        _started,
        _choose,
        lambda world, process: _finish(world, _prepare(world, _upload(world, process))),
    ),
    Scenario(
        "API_3 upload",
        _started,
        _upload,
        lambda world, process: _finish(world, _prepare(world, process)),
    ),
    Scenario("API_3 prepare", lambda world: _upload(world, _started(world)), _prepare, _finish),
    Scenario("API_4 commit", _committed, _end("commit"), lambda world, _: _fetch(world)),
    Scenario("API_5 abort", _ready, _end("abort", error="deadlock"), _again),
    Scenario("API_6 fail", _started, _end("fail", error="no"), _again),
    Scenario(
        "ack",
        lambda world: _end("commit")(world, _committed(world)),
        lambda world, _: _ack(world, "big"),
        lambda world, _: _ack(world, "small"),
    ),
    Scenario("resolve", _in_doubt, _resolve, lambda world, _: _fetch(world)),
    Scenario("resolve on API_1", _in_doubt, _resolve_by_start, lambda world, _: _fetch(world)),
    Scenario("sweep: STARTED", _started, _expire, _settled, {"started_timeout": "1500ms"}),
    Scenario(
        "sweep: READY_TO_COMMIT", _ready, _doubt_by_time, _finish, {"ready_timeout": "1500ms"}
    ),
    Scenario("retention", _whole, _grow_old, _nothing, {"retention_interval": "50ms"}),
    Scenario("recovery: ready", _stopped, _nothing, _committed_again, is_recovery=True),
    Scenario("recovery: half taken in", _half_taken_in, _nothing, _taken_in, is_recovery=True),
    Scenario(
        "recovery: half committed", _half_committed, _nothing, _committed_again, is_recovery=True
    ),
    Scenario(
        "recovery: half aborted",
        _half_aborted,
        _nothing,
        lambda world, process: _again(world, _end("abort")(world, process)),
        is_recovery=True,
    ),
    Scenario("recovery: outdated Log", _outdated, _nothing, _forgotten, is_recovery=True),
)
