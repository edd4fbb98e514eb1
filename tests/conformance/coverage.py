"""Which behaviours and differences are played, and why the others are not.

The numbers of behaviours are those of the catalogue of group behaviours, sections A to P: what a coordinator shows on
the wire. The numbers of differences are those of docs/differences.md.
"""

from __future__ import annotations

CATALOGUE = {
    "A, coordinators": (1, 4, 6, 7, 8),
    "B, joining": (9, 11, 12, 14, 16, 17, 19, 21, 22, 24, 25, 27, 28),
    "C, newcomers": (29, 31, 33, 35, 37, 38, 39),
    "D, initial delay": (40, 42, 44, 46),
    "E, join phase": (47, 49, 51, 52, 54, 56, 57, 59, 61, 62, 63),
    "F, static joins": (65, 67, 70, 72, 73, 75, 76, 78, 80, 81, 84, 85, 86, 87, 88),
    "G, static time-outs": (91, 93, 96, 97),
    "H, fencing": (98, 100, 102, 103),
    "I, syncing": (104, 105, 106, 108, 110, 113, 114, 116, 118, 120, 122, 123, 124, 125),
    "J, heartbeats": (126, 127, 130, 131, 134, 135, 136, 137, 138),
    "K, leaving": (140, 142, 143, 144, 147, 149, 151, 152, 154, 155, 156),
    "L, commits": (157, 159, 160, 162, 164, 166, 167, 169, 171, 172, 173, 174, 175),
    "M, fetches": (176, 178, 181, 182, 183, 184),
    "N, administration": (186, 189, 190, 192, 193, 195, 197, 198, 200, 201, 202),
    "O, storage": (203, 205, 206, 207, 210, 212, 213, 214, 215, 216, 218, 220, 221),
    "P, bytes of the consumer protocol": (222, 224, 225, 227, 228),
}

TRANSACTIONS = "transactions: Holdfast has none (difference 1)"
ONE_BROKER = "needs a second broker: Holdfast is one (difference 2)"
NO_AUTHORIZATION = "needs an authorizer: tests/broker/test_authorization.py"
DEAD = "a group is DEAD only for the moment of its deletion, which no client can hit"
FAILING_DISK = "needs an append that fails: tests/broker/test_group_full_disk.py"
CLIENT = "bytes that only clients read: tests/unit/wire"

NOT_PLAYED: dict[int, str] = {
    1: "ApiVersions lists what each server has: tests/real/test_apache_kafka.py",
    6: NO_AUTHORIZATION,
    7: "Holdfast makes its offsets topic before it listens",
    **dict.fromkeys((9, 106, 125, 182), ONE_BROKER),
    **dict.fromkeys((27, 105, 127, 143, 159), DEAD),
    **dict.fromkeys((81, 123, 173), FAILING_DISK),
    **dict.fromkeys((102, 174, 175, 183, 184), TRANSACTIONS),
    **dict.fromkeys((222, 224, 225, 227, 228), CLIENT),
    61: "five minutes of waiting: tests/unit/coordinator moves its clock",
    138: "needs a broker caught while it loads: tests/broker/test_group_loading.py",
    **dict.fromkeys((216, 221), "record bytes, not answers: tests/real/test_group_records_on_kafka.py"),
}

ANY_REQUEST = "bytes and limits of any request: tests/broker, tests/unit/broker"
RECORDS = "records and their logs: tests/broker, tests/real"
TOPICS = "topics and configs: tests/real/test_admin_like_kafka.py"

BEYOND_KAFKA = "what Kafka has not: tests/unit/coordinator/test_registration.py, test_standbys.py, test_failures.py"
NOT_SHOWN: dict[int, str] = {
    2: "one broker beside a cluster of one: there is nothing to see",
    3: "needs a listener that asks for it: tests/unit/broker/test_config.py",
    **dict.fromkeys((7, 8, 9, 46, 47), ANY_REQUEST),
    10: "defaults, which no play leaves as they are: tests/unit/broker/test_config.py",
    **dict.fromkeys((5, 6, 15, 16, 27, 42, 44, 45, 48, 49, 50), RECORDS),
    **dict.fromkeys(
        (40, 41), "needs a listener that asks who one is: tests/broker/test_authorization.py, test_tls_doors.py"
    ),
    **dict.fromkeys((11, 13), TOPICS),
    43: "topics of the broker's own: tests/unit/broker/handlers, tests/broker/test_group_ledger.py",
    34: "how often a timer fires: tests/unit/coordinator/test_bounds.py",
    **dict.fromkeys((35, 36, 37, 58, 59), BEYOND_KAFKA),
    38: "needs a cooperative hand-over that a restart cuts short: tests/unit/coordinator/test_extension_findings.py",
    39: "needs a topic that grows while its leader is away: tests/unit/coordinator/test_extension_findings.py",
    **dict.fromkeys((56, 57), "too large, or a closed connection: tests/real/test_groups_unlike_kafka.py"),
    **dict.fromkeys((61, 62), "ApiVersions: tests/real/test_api_versions_like_kafka.py"),
    **dict.fromkeys((63, 64), "the cluster, not groups: tests/real/test_admin_like_kafka.py"),
    70: "only Holdfast's own client asks so: tests/unit/membership/test_lost_syncs.py",
}
"""Differences that are no group's, that Kafka cannot play, and those that only our own tests bring about."""
