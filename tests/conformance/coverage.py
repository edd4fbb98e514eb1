"""Which behaviours and differences no scenario shows, and why.

The numbers of behaviours are those of `behaviours.py`, the numbers of differences those of docs/differences.md.
"""

from __future__ import annotations

TRANSACTIONS = "transactions: Holdfast has none (difference 1)"
ONE_BROKER = "needs a second broker: Holdfast is one (difference 2)"
NO_AUTHORIZATION = "needs an authorizer: tests/broker/test_authorization.py"
DEAD = "a group is DEAD only for the moment of its deletion, which no client can hit"
FAILING_DISK = "needs an append that fails: tests/broker/test_group_full_disk.py"
CLIENT = "bytes that only clients read: tests/unit/wire"

NOT_COVERED: dict[int, str] = {
    1: "ApiVersions lists what each server has: tests/kafka_parity/test_apache_kafka.py",
    6: NO_AUTHORIZATION,
    7: "Holdfast makes its offsets topic before it listens",
    **dict.fromkeys((9, 106, 125, 182), ONE_BROKER),
    **dict.fromkeys((27, 105, 127, 143, 159), DEAD),
    **dict.fromkeys((81, 123, 173), FAILING_DISK),
    **dict.fromkeys((102, 174, 175, 183, 184), TRANSACTIONS),
    **dict.fromkeys((222, 224, 225, 227, 228), CLIENT),
    61: "a wait of five minutes: tests/unit/coordinator moves its clock",
    138: "needs a broker caught while it loads: tests/broker/test_group_loading.py",
    **dict.fromkeys((216, 221), "record bytes, not answers: tests/kafka_parity/test_group_records_on_kafka.py"),
}

ANY_REQUEST = "bytes and limits of any request: tests/broker, tests/unit/broker"
RECORDS = "records and their logs: tests/broker, tests/kafka_parity"
TOPICS = "topics and configs: tests/kafka_parity/test_admin_like_kafka.py"

BEYOND_KAFKA = (
    "beyond Kafka: the tests of registration, standbys, takeovers and assignment failures in tests/unit/coordinator"
)
NOT_SHOWN: dict[int, str] = {
    2: "one broker beside a cluster of one: there is nothing to see",
    3: "needs a listener with that setting: tests/unit/broker/config/test_broker.py",
    **dict.fromkeys((7, 8, 9, 46, 47), ANY_REQUEST),
    10: "defaults, which no scenario keeps: tests/unit/broker/config/test_broker.py",
    **dict.fromkeys((5, 6, 15, 16, 27, 42, 44, 45, 48, 49, 50), RECORDS),
    **dict.fromkeys(
        (40, 41), "needs a listener with authentication: tests/broker/test_authorization.py, test_tls_listeners.py"
    ),
    **dict.fromkeys((11, 13), TOPICS),
    43: "topics of the broker's own: tests/unit/broker/api/handlers, tests/broker/test_group_ledger.py",
    34: "how often a timer fires: tests/unit/coordinator/test_cost_bounds.py",
    **dict.fromkeys((35, 36, 37, 58, 59), BEYOND_KAFKA),
    38: "needs a cooperative hand-over that a restart cuts short: tests/unit/coordinator/test_extension_regressions.py",
    39: "needs a topic that grows while its leader is away: tests/unit/coordinator/test_extension_regressions.py",
    **dict.fromkeys((56, 57), "too large, or a closed connection: tests/kafka_parity/test_groups_unlike_kafka.py"),
    **dict.fromkeys((61, 62), "ApiVersions: tests/kafka_parity/test_api_versions_like_kafka.py"),
    **dict.fromkeys((63, 64), "the cluster, not groups: tests/kafka_parity/test_admin_like_kafka.py"),
    70: "only Holdfast's own client asks so: tests/unit/membership/test_lost_syncs.py",
    71: "it needs a disk that hangs: tests/unit/coordinator/test_slow_and_failing_appends.py",
}
"""Differences outside groups, those that Kafka cannot show, and those that only other tests bring about."""
