"""Checkers of the promises. Each takes a history and returns what it has found.

They accept every history that the promises allow, whatever the faults were: a call without an
answer may have had its effect or not. They import nothing of the code under test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any

from proof.history.record import Call, Effect, Fault, History

__all__ = [
    "SERVER_JUMP",
    "Finding",
    "check_bridge",
    "check_delay",
    "check_delivery",
    "check_exactly_once",
    "check_expiry",
    "check_leases",
    "check_order",
    "check_sagas",
    "is_parity",
    "longest_gap",
]

# The kind of a fault: the clock of a server jumps, and is not known in a window around it.
SERVER_JUMP = "jump_server_clock"
JUMP_MARGIN_SECONDS = 5.0
# Clients and servers share the clock of this machine, apart from what rounding adds.
LEASE_MARGIN_SECONDS = 0.1
Predicate = Callable[[Mapping[str, Any]], bool]


@dataclass
class Finding:
    """The result of one checker: the promise, how much was judged, what broke it.

    `lost` is what was acknowledged and is gone, as asynchronous replication is documented to lose
    it at a failover; `moments` says when each of these was acknowledged, where that is known. All
    are violations where commits wait for a standby, and without a failover at that moment.
    """

    promise: str
    checked: int = 0
    skipped: int = 0
    violations: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)

    def lose(self, text: str, acknowledged: float) -> None:
        """Note that something acknowledged at that time is gone."""
        self.lost.append(text)
        self.moments[text] = acknowledged


@dataclass
class Posted:
    """What is recorded of one key: the messages that one or several calls tried to post."""

    key: str
    message: dict[str, Any]
    iids: set[str] = field(default_factory=set)
    first_invoked: float = 0.0
    acknowledged: float | None = None


def posted(history: History, queue: str) -> dict[str, Posted]:
    """Gather the posts of a queue by key; a call that was tried again has the same key."""
    found: dict[str, Posted] = {}
    for call in history.of("post", queue):
        iids = call.answer.get("iids", [])
        for place, message in enumerate(call.fields["messages"]):
            key = message["key"]
            entry = found.setdefault(key, Posted(key, message, first_invoked=call.invoked))
            if call.phase == "refused":
                continue
            if call.phase == "ok" and call.answered is not None:
                entry.iids.add(iids[place])
                if entry.acknowledged is None:
                    entry.acknowledged = call.answered
    return found


def is_parity(wanted: str) -> Predicate:
    """Return the rule of a selector that wants one value of the property `parity`."""
    return lambda message: message.get("parity") == wanted


def check_delivery(
    history: History,
    queue: str,
    consumers: Mapping[str, Predicate | None],
    promise: str = "acknowledged posts reach each matching consumer",
) -> Finding:
    """Every acknowledged message reached each consumer whose selector matches, and no other."""
    finding = Finding(f"{queue}: {promise}")
    posts = posted(history, queue)
    got: dict[str, dict[str, list[Effect]]] = {name: defaultdict(list) for name in consumers}
    for effect in history.effects:
        if effect.queue != queue:
            continue
        if effect.consumer not in got:
            finding.violations.append(f"{queue}: unknown consumer {effect.consumer}")
            continue
        got[effect.consumer][effect.key].append(effect)
        if effect.key not in posts:
            finding.violations.append(
                f"{queue}: {effect.consumer} got {effect.key}, which no client posted"
            )
    for post in posts.values():
        if "expires" in post.message:
            # May be consumed or not; check_expiry judges these.
            finding.skipped += 1
            continue
        if len(post.iids) > 1:
            finding.violations.append(
                f"{queue}: {post.key} was posted under several iids: {sorted(post.iids)}"
            )
        for consumer, predicate in consumers.items():
            effects = got[consumer].get(post.key, [])
            is_wanted = predicate is None or predicate(post.message)
            finding.checked += 1
            if effects and not is_wanted:
                finding.violations.append(
                    f"{queue}: {consumer} got {post.key}, which its selector does not match"
                )
            if post.acknowledged is not None and is_wanted and not effects:
                finding.lose(
                    f"{queue}: {consumer} never got {post.key}, acknowledged", post.acknowledged
                )
    return finding


def check_exactly_once(history: History, queue: str) -> Finding:
    """No consumer has committed the work of one message, or of one key, twice."""
    finding = Finding(f"{queue}: transactional work is done exactly once")
    seen: dict[tuple[str, str], Effect] = {}
    for effect in history.effects:
        if effect.queue != queue:
            continue
        finding.checked += 1
        for name in (effect.key, f"iid {effect.iid}"):
            before = seen.setdefault((effect.consumer, name), effect)
            if before is not effect:
                finding.violations.append(
                    f"{queue}: {effect.consumer} did {name} twice, as {before.number} and"
                    f" {effect.number}"
                )
                break
    return finding


def check_bridge(history: History, source: str, target: str) -> Finding:
    """Every acknowledged message of the source was handled once at the target, and no other.

    Where a failover may lose commits, it may take back a post that has crossed already; if the
    client got no answer and posted it again, it crosses again.
    """
    finding = Finding(f"{source}: messages cross the bridges to {target} exactly once")
    posts = posted(history, source)
    calls: dict[str, int] = defaultdict(int)
    for call in history.of("post", source):
        for message in call.fields["messages"]:
            calls[message["key"]] += 1
    arrived: dict[str, int] = defaultdict(int)
    for effect in history.effects:
        if effect.queue == target:
            arrived[effect.key] += 1
    finding.violations += [
        f"{target}: {key} arrived, which no client posted" for key in arrived.keys() - posts.keys()
    ]
    for post in posts.values():
        finding.checked += 1
        if arrived[post.key] > 1:
            found = finding.lost if calls[post.key] > 1 else finding.violations
            found.append(f"{target}: {post.key} arrived {arrived[post.key]} times")
        elif not arrived[post.key] and post.acknowledged is not None:
            finding.lost.append(f"{target}: {post.key} never arrived, acknowledged")
    return finding


def check_order(history: History, queue: str) -> Finding:
    """Each consumer handled the messages of a group in the order in which they were posted.

    One client posts a group, the next message after the former was acknowledged; so the numbers of
    a group ascend. A message that the client gave up without an answer may be missing.
    """
    finding = Finding(f"{queue}: messages of a group are handled in order")
    last: dict[tuple[str, str], Effect] = {}
    for effect in sorted(history.effects, key=lambda each: each.number):
        if effect.queue != queue or effect.group is None or effect.sequence is None:
            continue
        finding.checked += 1
        before = last.get((effect.consumer, effect.group))
        if before is not None and (before.sequence or 0) >= effect.sequence:
            finding.violations.append(
                f"{queue}: {effect.consumer} handled {effect.group} number {effect.sequence}"
                f" after number {before.sequence}"
            )
        last[effect.consumer, effect.group] = effect
    return finding


def check_delay(history: History, queue: str) -> Finding:
    """No message was handled before its `delayed_until`, by the database's own clock."""
    return _check_time(
        history,
        queue,
        Finding(f"{queue}: never delivered before delayed_until"),
        "delayed_until",
        lambda effect, limit: effect.at < limit,
    )


def check_expiry(history: History, queue: str) -> Finding:
    """No message was taken after its `expires`, by the database's own clock.

    Judged by the beginning of the transaction that took it: the handler itself may run later.
    """
    return _check_time(
        history,
        queue,
        Finding(f"{queue}: never delivered after expires"),
        "expires",
        lambda effect, limit: effect.began > limit,
    )


def _check_time(
    history: History,
    queue: str,
    finding: Finding,
    name: str,
    is_wrong: Callable[[Effect, float], bool],
) -> Finding:
    posts = posted(history, queue)
    jumps = [fault for fault in history.faults if fault.kind == SERVER_JUMP]
    for effect in history.effects:
        post = posts.get(effect.key)
        if effect.queue != queue or post is None or name not in post.message:
            continue
        # A message made ready while a clock was ahead is consumed under another clock.
        if _overlaps(jumps, post.first_invoked, effect.handled):
            finding.skipped += 1
            continue
        finding.checked += 1
        limit = float(post.message[name])
        if is_wrong(effect, limit):
            finding.violations.append(
                f"{queue}: {effect.consumer} got {effect.key} at {effect.at:.3f}"
                f" (transaction {effect.began:.3f}), {name} is {limit:.3f}"
            )
    return finding


def _overlaps(faults: Iterable[Fault], began: float, ended: float) -> bool:
    return any(
        fault.began - JUMP_MARGIN_SECONDS < ended and began < fault.ended + JUMP_MARGIN_SECONDS
        for fault in faults
    )


def check_leases(history: History, queue: str) -> Finding:
    """Leased work is done at least once, and only the last holder of a message can ack it.

    A holder is fenced when another call has been given the message. An ack that was invoked after
    that and is answered with success is a violation; so is a second success for one message, and
    a lease of a message whose ack had been answered before the call for the lease was made. A
    lease that has ended cannot be acked either, even if no other holder has the message.

    A failover may explain the first three: it took back a lease or an ack, or both primaries gave
    the message for a while. Either way the former of the two calls was answered by a primary whose
    commits are lost, or beside one; its time decides.
    """
    finding = Finding(f"{queue}: leased work at least once, no ack of a fenced holder")
    keys: dict[str, str] = {}
    ends: dict[tuple[str, int], float] = {}
    jumps = [fault for fault in history.faults if fault.kind == SERVER_JUMP]
    holders: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for call in history.of("lease", queue):
        if call.phase == "ok" and call.answered is not None:
            for message in call.answer["messages"]:
                keys[message["iid"]] = message["key"]
                holders[message["iid"]].append((call.answered, call.invoked, message["token"]))
                ends[message["iid"], message["token"]] = message["leased_until"]
    acked: dict[str, list[Call]] = defaultdict(list)
    done = {note.fields["key"] for note in history.notes if note.fields.get("queue") == queue}
    for call in history.of("ack", queue):
        iid, token = call.fields["iid"], call.fields["token"]
        finding.checked += 1
        if call.phase != "ok" or call.answered is None:
            continue
        later = [held for held in holders[iid] if held[2] != token and held[0] < call.invoked]
        for given, _, other in later:
            if given > _given(holders[iid], token):
                finding.lose(
                    f"{queue}: a fenced holder acked {iid} with token {token}, not {other}", given
                )
        until = ends.get((iid, token))
        is_late = until is not None and call.invoked > until + LEASE_MARGIN_SECONDS
        if is_late and not _overlaps(jumps, until or 0, call.answered):
            finding.violations.append(f"{queue}: {iid} was acked after its lease had ended")
        acked[iid].append(call)
    for iid, calls in acked.items():
        leased = max((invoked for _, invoked, _ in holders[iid]), default=0.0)
        for call, after in zip_longest(calls, calls[1:]):
            token, answered = call.fields["token"], call.answered or 0.0
            if after is not None and after.fields["token"] != token:
                finding.lose(
                    f"{queue}: {iid} was acked under two tokens, {token} and"
                    f" {after.fields['token']}",
                    answered,
                )
            elif leased > answered:
                finding.lose(
                    f"{queue}: {iid} was leased again after its ack was answered at {answered:.3f}",
                    answered,
                )
        if keys.get(iid, "") not in done:
            finding.violations.append(f"{queue}: {iid} was acked without its work")
    for post in posted(history, queue).values():
        if post.acknowledged is not None:
            finding.checked += 1
            if post.key not in done:
                finding.lose(
                    f"{queue}: {post.key} was acknowledged and never worked on", post.acknowledged
                )
    return finding


def _given(holders: list[tuple[float, float, int]], token: int) -> float:
    return min((given for given, _, each in holders if each == token), default=0.0)


def check_sagas(history: History, queue: str, steps: tuple[str, ...]) -> Finding:
    """Every saga did all its steps once, or undid exactly the steps that it had done.

    `detail` of an effect is `do` or `undo` and the step: `do:rooms`.
    """
    finding = Finding(f"{queue}: sagas complete or compensate")
    did: dict[str, list[str]] = defaultdict(list)
    for effect in sorted(history.effects, key=lambda each: each.number):
        if effect.queue == queue and effect.detail is not None:
            did[effect.key].append(effect.detail)
    started: dict[str, float | None] = {}
    for call in history.of("saga", queue):
        at = call.answered if call.phase == "ok" else None
        started[call.fields["key"]] = started.get(call.fields["key"]) or at
    for key in did.keys() - started.keys():
        finding.violations.append(f"{queue}: saga {key} ran, which no client started")
    for key, acknowledged in started.items():
        finding.checked += 1
        actions = did.get(key, [])
        done = [name for name in steps if f"do:{name}" in actions]
        undone = [name for name in steps if f"undo:{name}" in actions]
        twice = {action for action in actions if actions.count(action) > 1}
        if twice:
            finding.violations.append(f"{queue}: saga {key} did twice: {sorted(twice)}")
        if not actions:
            if acknowledged is not None:
                finding.lose(f"{queue}: saga {key} was started and did nothing", acknowledged)
        elif undone != done if undone else len(done) != len(steps):
            finding.violations.append(f"{queue}: saga {key} ended with {actions}")
        for name in undone:
            if name in done and actions.index(f"undo:{name}") < actions.index(f"do:{name}"):
                finding.violations.append(f"{queue}: saga {key} undid {name} before it was done")
    return finding


def longest_gap(times: Iterable[float]) -> float:
    """Return the longest time between two neighbours, in seconds."""
    ordered = sorted(times)
    return max((b - a for a, b in pairwise(ordered)), default=0.0)
