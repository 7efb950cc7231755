"""Alerts reach the administrator by e-mail and by Apprise, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from postroad.alerts import AlertSender, ChannelRefused, DeliveryFailed
from postroad.alerts.channel import Channel, open_channels
from postroad.alerts.rendering import Rendered
from postroad.alerts.resources import NOTICES
from postroad.postgres import run_blocking
from postroad.settings import AlertsSettings
from postroad.testing import wait_until_async
from tests.fixtures.smtp import SmtpServer
from tests.fixtures.webhook import Webhook
from tests.integration.alerts.conftest import Reporter

Make = Callable[..., AlertsSettings]
NOTICE = Rendered("a subject", "a text\n", "<notice.1.1@postroad>")
BRIEF = timedelta(milliseconds=300)
PATIENT = timedelta(seconds=10)


async def until_taken(smtp: SmtpServer, count: int) -> None:
    async def look() -> bool:
        return len(smtp.taken) >= count

    await wait_until_async(look, what=f"{count} mails taken")


async def test_an_alert_and_its_all_clear_are_one_mail_each(
    database: str, smtp: SmtpServer, report: Reporter, settings_for: Make
) -> None:
    settings = settings_for(channels={"mail": smtp.url()}, installation="Works")
    async with AlertSender(database, settings) as sender:
        sender.signals.listen("sent")
        report.raise_("disk/one")
        report.raise_("disk/one")
        await sender.signals.wait("sent")
        for _ in range(3):
            report.raise_("disk/one")
        report.clear("disk/one")
        report.clear("disk/one")
        await sender.signals.wait("sent")
    assert [mail["Subject"] for mail in smtp.taken] == [
        "[Works] error: title of disk/one",
        "[Works] all clear: title of disk/one",
    ]
    first = smtp.taken[0]
    assert first["To"] == "admin@example.com"
    assert first["Auto-Submitted"] == "auto-generated"
    assert "text of disk/one" in first.get_content()
    assert "postroad alerts ack" in first.get_content()


async def test_what_comes_together_is_one_notice(
    database: str, smtp: SmtpServer, report: Reporter, settings_for: Make
) -> None:
    settings = settings_for(channels={"mail": smtp.url()})
    with psycopg.connect(database) as storm:
        storm.execute(
            "select alerts.raise('storm/' || n, 'test', 'error', 'storm ' || n)"
            " from generate_series(1, 300) n, generate_series(1, 3)"
        )
    async with AlertSender(database, settings) as sender:
        sender.signals.listen("sent")
        await sender.signals.wait("sent")
    (mail,) = smtp.taken
    assert mail["Subject"] == "[Postroad] 300 error: storm 1"
    assert "250 more" in mail.get_content()


@pytest.mark.parametrize("behaviour", ["temporary", "permanent", "silent"])
async def test_what_is_not_taken_is_tried_again(
    database: str, smtp: SmtpServer, report: Reporter, settings_for: Make, behaviour: str
) -> None:
    smtp.behaviour = behaviour
    settings = settings_for(channels={"mail": smtp.url()}, send_timeout=BRIEF)
    async with AlertSender(database, settings) as sender:
        sender.signals.listen("sent", "failed")
        report.raise_("k")
        for _ in range(2):
            failure = await sender.signals.wait("failed")
            assert isinstance(failure, DeliveryFailed)
        assert smtp.taken == []
        smtp.behaviour = "accept"
        await sender.signals.wait("sent")
    (notice,) = run_blocking(database, NOTICES.all)
    assert notice["state"] == "sent"
    assert notice["attempts"] == len(notice["tries"]) >= 3
    outcomes = [one["outcome"] for one in notice["tries"]]
    assert outcomes == ["failed"] * (notice["attempts"] - 1) + ["sent"]


async def test_a_mail_whose_answer_was_lost_is_sent_again_under_the_same_id(
    database: str, smtp: SmtpServer, report: Reporter, settings_for: Make
) -> None:
    smtp.behaviour = "cut"
    settings = settings_for(channels={"mail": smtp.url()})
    async with AlertSender(database, settings) as sender:
        sender.signals.listen("sent", "failed")
        report.raise_("k")
        await sender.signals.wait("failed")
        smtp.behaviour = "accept"
        await sender.signals.wait("sent")
    assert len(smtp.taken) >= 2
    assert len({mail["Message-ID"] for mail in smtp.taken}) == 1
    assert len({mail.get_content() for mail in smtp.taken}) == 1


async def test_several_senders_send_each_notice_once(
    database: str, smtp: SmtpServer, report: Reporter, settings_for: Make
) -> None:
    settings = settings_for(channels={"mail": smtp.url()}, poll_interval=timedelta(milliseconds=10))
    senders = [AlertSender(database, settings) for _ in range(4)]
    for sender in senders:
        await sender.start()
        await sender.ready()
    for number in range(5):
        report.raise_(f"k{number}")
        await until_taken(smtp, number + 1)
    await asyncio.gather(*(sender.stop() for sender in senders))
    assert len(smtp.taken) == 5
    assert [one["attempts"] for one in run_blocking(database, NOTICES.all)] == [1] * 5


async def test_a_channel_that_fails_is_reported_to_the_others_and_cleared(
    database: str, smtp: SmtpServer, webhook: Webhook, report: Reporter, settings_for: Make
) -> None:
    webhook.status = 500
    hook = f"json://127.0.0.1:{webhook.port}/secret-path"
    settings = settings_for(channels={"mail": smtp.url(), "hook": hook})

    async def told(subject: str) -> None:
        async def look() -> bool:
            return any(subject in str(mail["Subject"]) for mail in smtp.taken)

        await wait_until_async(look, what=subject)

    async with AlertSender(database, settings):
        report.raise_("k")
        await told("error: the channel hook does not take notices")
        webhook.status = 200
        await told("all clear: the channel hook does not take notices")
    assert webhook.posts[0]["title"] == "[Postroad] error: title of k"
    # A channel hears nothing about itself.
    assert not any("does not take" in post["title"] for post in webhook.posts)


async def test_a_slow_channel_does_not_keep_the_others_waiting(
    database: str, smtp: SmtpServer, webhook: Webhook, report: Reporter, settings_for: Make
) -> None:
    smtp.behaviour = "silent"
    settings = settings_for(
        channels={"mail": smtp.url(), "hook": f"json://127.0.0.1:{webhook.port}/"},
        send_timeout=timedelta(seconds=2),
    )
    async with AlertSender(database, settings) as sender:
        sender.signals.listen("sent")
        report.raise_("k")
        notice = await sender.signals.wait("sent")
    assert notice.channel == "hook"


async def test_least_severity_is_per_channel(
    database: str, smtp: SmtpServer, webhook: Webhook, report: Reporter, settings_for: Make
) -> None:
    settings = settings_for(
        channels={"mail": smtp.url(), "sms": f"json://127.0.0.1:{webhook.port}/"},
        channel_severity={"sms": "critical"},
    )
    report.raise_("small", severity="info")
    report.raise_("middle", severity="warning")
    report.raise_("large", severity="critical")
    async with AlertSender(database, settings) as sender:
        sender.signals.listen("sent")
        for _ in range(2):
            await sender.signals.wait("sent")
        assert smtp.taken[0]["Subject"] == "[Postroad] 1 critical, 1 warning: title of large"
        assert [post["title"] for post in webhook.posts] == ["[Postroad] critical: title of large"]
        # Growing worse is news.
        report.raise_("middle", severity="critical")
        for _ in range(2):
            await sender.signals.wait("sent")
    assert webhook.posts[1]["title"] == "[Postroad] critical: title of middle"
    assert "has become critical" in smtp.taken[1].get_content()


def test_a_password_is_not_sent_in_the_clear(smtp: SmtpServer) -> None:
    url = f"smtp://user:secret@127.0.0.1:{smtp.port}?to=a@example.com"
    (channel,) = open_channels(AlertsSettings(channels={"mail": url}))
    with pytest.raises(DeliveryFailed, match="STARTTLS"):
        channel.send(NOTICE, BRIEF)
    assert "secret" not in channel.address


def test_a_mail_is_encrypted_and_its_sender_logs_in(
    smtp: SmtpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = smtp.offer_encryption(tmp_path, ("robot", "s3cret/x"))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    _channel(smtp.url("robot:s3cret%2Fx@", starttls="required")).send(NOTICE, PATIENT)
    assert smtp.logins == [("robot", "s3cret/x")]
    assert [mail["Subject"] for mail in smtp.taken] == ["a subject"]


def test_a_wrong_login_is_told(
    smtp: SmtpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = smtp.offer_encryption(tmp_path, ("robot", "right"))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with pytest.raises(DeliveryFailed, match="535 who are you"):
        _channel(smtp.url("robot:wrong@")).send(NOTICE, PATIENT)
    assert smtp.taken == []


def test_a_server_whose_certificate_is_not_trusted_gets_no_password(
    smtp: SmtpServer, tmp_path: Path
) -> None:
    smtp.offer_encryption(tmp_path, ("robot", "secret"))
    with pytest.raises(DeliveryFailed, match="certificate"):
        _channel(smtp.url("robot:secret@")).send(NOTICE, PATIENT)
    assert smtp.logins == []


def _channel(url: str) -> Channel:
    (channel,) = open_channels(AlertsSettings(channels={"mail": url}))
    return channel


@pytest.mark.parametrize(
    "url",
    ["smtp://host", "smtp://?to=a@b", "smtp://h:99999?to=a@b", "smtp://h?to=a@b&x=1", "nosuch://h"],
)
def test_a_useless_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ChannelRefused) as refused:
        open_channels(AlertsSettings(channels={"mail": url}))
    assert url not in str(refused.value)
    assert refused.value.channel == "mail"
