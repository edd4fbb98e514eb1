"""`format("holdfast")` behind Holdfast's own TLS, passwords and rights: rows come through, or a sentence says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.authorization.acls import Operation
from tests.broker.secured_broker import PASSWORDS, SecuredBroker, user_acl
from tests.broker.wire_client import batch
from tests.spark.streaming_queries import StreamQuery, one_sentence

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NOW = {"availableNow": True}
VALUES = [b"%d" % number for number in range(20)]
PATIENCE_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("guarded")) as started:
        yield started


def options(broker: SecuredBroker, **more: str) -> dict[str, str]:
    """Alice's, over TLS, by SCRAM."""
    return {f"kafka.{name}": str(value) for name, value in broker.settings("alice").items()} | more


@pytest.fixture
def filled(broker: SecuredBroker, topic: str) -> str:
    with broker.connect_as("admin") as admin:
        admin.create_topic(topic)
        assert admin.produce(topic, batch(*VALUES)).error_code == 0
    return topic


@pytest.fixture
def source(
    broker: SecuredBroker, spark: Any, filled: str, group: str, tmp_path: Path, ending: ExitStack
) -> StreamQuery:
    """Alice's query of the topic as a member of the group; not started."""
    wanted = options(broker, subscribe=filled) | {"kafka.group.id": group}
    query = StreamQuery(spark, wanted, tmp_path / "checkpoint")
    ending.callback(query.end)
    return query


def values(broker: SecuredBroker, topic: str) -> list[bytes | None]:
    with broker.connect_as("admin") as admin:
        return [record.value for record in admin.fetch_all(topic)]


def failure(rows: Any, wanted: dict[str, str]) -> str:
    """What a batch fails with that cannot be written."""
    with pytest.raises(Exception) as failed:  # Spark has several for it
        rows.write.format("holdfast").mode("append").options(**wanted).save()
    reported = str(failed.value)
    # Spark's own way to the sink is a few frames; ours is at most two.
    assert reported.count("src/holdfast/") + reported.count("site-packages/holdfast/") <= 4, reported
    return reported


def test_a_stream_copies_a_topic_with_only_the_needed_permissions(
    broker: SecuredBroker, spark: Any, filled: str, group: str, tmp_path: Path
) -> None:
    # given
    copy = f"{filled}-copy"
    with broker.connect_as("admin") as admin:
        admin.create_topic(copy)
    broker.grant_now(
        user_acl("alice", Operation.READ, topic=filled),
        user_acl("alice", Operation.READ, group=group),
        user_acl("alice", Operation.WRITE, topic=copy),
    )

    # when
    wanted = options(broker, subscribe=filled, startingOffsets="earliest") | {"kafka.group.id": group}
    rows = spark.readStream.format("holdfast").options(**wanted).load().select("key", "value")
    writer = rows.writeStream.format("holdfast").options(**options(broker, topic=copy)).trigger(**NOW)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    # then
    assert query.awaitTermination(PATIENCE_S), "the query has not ended"
    assert values(broker, copy) == VALUES


def test_a_wrong_password_is_one_sentence_without_the_password(
    broker: SecuredBroker, spark: Any, source: StreamQuery, filled: str, group: str
) -> None:
    # given one who may read and write, if it is she
    broker.grant_now(
        user_acl("alice", Operation.READ, topic=filled),
        user_acl("alice", Operation.WRITE, topic=filled),
        user_acl("alice", Operation.READ, group=group),
    )
    row = spark.range(1).selectExpr("'written' AS value")

    # when it is not
    source.options["kafka.sasl.password"] = "not-alices-secret"
    source.start(NOW)
    reported = one_sentence(source.error)
    wanted = options(broker, topic=filled)
    unwritten = failure(row, wanted | {"kafka.sasl.password": "not-alices-secret"})

    # then
    assert "SASL" in reported and "kafka.sasl." in reported
    assert "do not accept each other, see options kafka.security.protocol, kafka.sasl.*" in unwritten
    assert "not-alices-secret" not in source.error + unwritten
    assert values(broker, filled) == VALUES

    # and with the right one both are let in
    row.write.format("holdfast").mode("append").options(**wanted).save()
    source.options["kafka.sasl.password"] = PASSWORDS["alice"]
    source.start(NOW)
    source.to_its_end()
    assert [row.value for row in source.rows] == [*VALUES, b"written"]


def test_a_right_that_is_lacking_is_one_sentence_that_names_it(
    broker: SecuredBroker, spark: Any, source: StreamQuery, filled: str, group: str
) -> None:
    # given one who may see the topic, and no more
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, topic=filled))

    # then she may not be a member
    source.start(NOW)
    reported = one_sentence(source.error)
    assert group in reported and "GROUP_AUTHORIZATION_FAILED: grant READ on the group to this user" in reported

    # nor, as one, read
    broker.grant_now(user_acl("alice", Operation.READ, group=group))
    source.start(NOW)
    refusal = "Topic authorization failed: grant READ on the topic to the user of option kafka.sasl.username"
    (reported,) = [line for line in set(source.error.splitlines()) if refusal in line]
    assert f"{filled}-0 cannot be read at 0: " in reported

    # nor write
    row = spark.range(1).selectExpr("'written' AS value")
    reported = failure(row, options(broker, topic=filled))
    assert f"topic {filled}: the user of option kafka.sasl.username may not write to it" in reported
    assert (source.rows, values(broker, filled)) == ([], VALUES)

    # the control: with the rights all of it works
    broker.grant_now(
        user_acl("alice", Operation.READ, topic=filled),
        user_acl("alice", Operation.WRITE, topic=filled),
    )
    row.write.format("holdfast").mode("append").options(**options(broker, topic=filled)).save()
    source.start(NOW)
    source.to_its_end()
    assert [row.value for row in source.rows] == [*VALUES, b"written"]
