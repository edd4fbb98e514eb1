"""An absent user looks like an existing one: in what SCRAM sends before any proof, and in the time that takes."""

import time
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from holdfast.broker.authorization.authorizer import Authorizer
from holdfast.broker.authorization.decoy_credentials import PLAIN, DecoyCredentials
from holdfast.broker.authorization.scram import DEFAULT_ITERATIONS, Credential, make_credential
from holdfast.broker.authorization.users_file import Users, write_users
from holdfast.broker.config.security import SCRAM_MECHANISMS, SecuritySettings

SECRET = b"0123456789abcdef0123456789abcdef"
PASSWORD = "correct horse battery"
SHA_256 = SCRAM_MECHANISMS[0]
ABSENT = [f"absent-{number}" for number in range(2000)]


def credential(iterations: int, salt: bytes = b"\x01" * 24, mechanism: str = SHA_256) -> Credential:
    return Credential(mechanism, iterations, salt, b"", b"")


def users_of(*credentials: Credential) -> dict[str, dict[str, Credential]]:
    return {f"user-{number}": {one.mechanism: one} for number, one in enumerate(credentials)}


def test_the_answer_for_an_absent_user_stays_the_same_and_fits_no_password() -> None:
    decoys = DecoyCredentials(users_of(credential(8192)), SECRET)
    first, again, other = (decoys.credential(SHA_256, name) for name in ("mallory", "mallory", "trudy"))
    assert (first.salt, first.iterations) == (again.salt, again.iterations)
    assert first.salt != other.salt
    assert not first.matches("") and first.stored_key != again.stored_key
    assert DecoyCredentials(users_of(credential(8192)), SECRET[::-1]).credential(SHA_256, "mallory").salt != first.salt


def test_iteration_counts_of_absent_users_are_spread_like_those_of_existing_users() -> None:
    """Otherwise a count that only existing users have shows that a user exists, and the usual one that it may not."""
    decoys = DecoyCredentials(users_of(*[credential(4096)] * 100, *[credential(16384)] * 100), SECRET)
    counts = Counter(decoys.credential(SHA_256, name).iterations for name in ABSENT)
    assert set(counts) == {4096, 16384}
    assert min(counts.values()) > len(ABSENT) / 4


@pytest.mark.parametrize(
    "salt", [b"\x01" * 24, b"\x02" * 64, b"1h1fjqtq2vkqnqgm2q8bpzk0v"], ids=["ours", "long", "java"]
)
def test_salts_of_absent_users_have_the_form_of_existing_ones(salt: bytes) -> None:
    """Kafka's Java tools make salts of digits and lower-case letters, of another length than ours."""
    decoys = DecoyCredentials(users_of(credential(4096, salt)), SECRET)
    salts = [decoys.credential(SHA_256, name).salt for name in ABSENT]
    assert {len(one) for one in salts} == {len(salt)}
    assert all(one.isalnum() and one.islower() for one in salts if salt.isalnum()) and len(set(salts)) == len(ABSENT)


def test_a_new_user_changes_the_answer_for_few_absent_users() -> None:
    """Those whose answer changes are known to be absent."""
    before = users_of(*[credential(4096)] * 50)
    decoys, later = (
        DecoyCredentials(before, SECRET),
        DecoyCredentials(before | {"new": {SHA_256: credential(16384)}}, SECRET),
    )
    changed = sum(
        decoys.credential(SHA_256, one).iterations != later.credential(SHA_256, one).iterations for one in ABSENT
    )
    assert 0 < changed < len(ABSENT) / 10


def test_without_users_the_defaults_are_shown() -> None:
    decoys = DecoyCredentials({}, SECRET)
    made = make_credential(SHA_256, PASSWORD)
    shown = decoys.credential(SHA_256, "mallory")
    assert (shown.mechanism, shown.iterations, len(shown.salt)) == (SHA_256, DEFAULT_ITERATIONS, len(made.salt))
    assert decoys.credential(PLAIN, "mallory").mechanism == SCRAM_MECHANISMS[-1]


def test_plain_compares_with_the_strongest_hash_that_a_user_has() -> None:
    weak = Users(credentials={"bob": {SHA_256: make_credential(SHA_256, PASSWORD, 4096)}})
    found = weak.credential(PLAIN, "bob")
    assert found is not None and found.matches(PASSWORD)
    assert DecoyCredentials(weak.credentials, SECRET).credential(PLAIN, "mallory").mechanism == SHA_256, (
        "and as long with decoys"
    )


@pytest.mark.parametrize("mechanism", [*SCRAM_MECHANISMS, PLAIN])
def test_a_lookup_takes_as_long_for_an_absent_user_as_for_an_existing_one(tmp_path: Path, mechanism: str) -> None:
    """CPU time of alternating lookups. (Control: without a decoy, an existing user is found many times faster.)"""
    users = Users()
    for name in ("alice", "bob"):
        users = users.with_user(name, PASSWORD, 4096)
    write_users(tmp_path / "users.json", users)
    authorizer = Authorizer(SecuritySettings(users_file=tmp_path / "users.json"))

    def cost_ns(find: object, name: str) -> int:
        began = time.thread_time_ns()
        for _ in range(50):
            find(mechanism, name)  # type: ignore[operator]
        return time.thread_time_ns() - began

    rounds = [(cost_ns(authorizer.credential, "alice"), cost_ns(authorizer.credential, "mallory")) for _ in range(41)]
    existing, absent = (median(one[at] for one in rounds) for at in (0, 1))
    assert 0.8 < absent / existing < 1.25
    without_decoy = median(cost_ns(users.credential, "alice") for _ in range(41))
    assert existing > 3 * without_decoy


@pytest.mark.parametrize("mechanism", [*SCRAM_MECHANISMS, PLAIN])
def test_a_password_of_an_absent_user_takes_as_much_hashing_as_a_wrong_one(mechanism: str) -> None:
    """CPU time, the least of some tries on either side: other work only adds to it."""
    users = Users().with_user("alice", PASSWORD, DEFAULT_ITERATIONS)
    existing = users.credential(mechanism, "alice")
    assert existing is not None
    absent = DecoyCredentials(users.credentials, SECRET).credential(mechanism, "mallory")

    def cost_s(one: Credential) -> float:
        began = time.thread_time()
        assert not one.matches("wrong")
        return time.thread_time() - began

    costs = [(cost_s(existing), cost_s(absent)) for _ in range(7)]
    least_existing, least_absent = (min(one[at] for one in costs) for at in (0, 1))
    assert 0.5 < least_existing / least_absent < 2
