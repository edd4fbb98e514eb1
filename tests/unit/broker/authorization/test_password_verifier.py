"""Clients that guess passwords wait; other clients do not."""

import asyncio

from holdfast.broker.authorization.password_verifier import FairPasswordVerifier
from holdfast.broker.authorization.scram import Credential


class Slow(Credential):
    """Compares as usual, and tells in which order."""

    order: list[str]

    def matches(self, password: str) -> bool:
        self.order.append(password)
        return password == "right"


def slow() -> Slow:
    credential = Slow("SCRAM-SHA-512", 4096, b"", b"", b"")
    object.__setattr__(credential, "order", [])  # it is frozen
    return credential


def test_hosts_take_turns() -> None:
    credential, turns = slow(), FairPasswordVerifier()

    async def scenario() -> None:
        guesses = [turns.verify("10.0.0.6", credential, f"guess {number}") for number in range(20)]
        honest = [turns.verify(f"10.0.0.{host}", credential, "right") for host in (7, 8)]
        assert await asyncio.gather(*guesses, *honest) == [False] * 20 + [True] * 2

    asyncio.run(scenario())

    assert credential.order[:4] == ["guess 0", "guess 1", "right", "right"]
    assert credential.order[4:] == [f"guess {number}" for number in range(2, 20)]


def test_cancelled_verifications_do_not_take_a_turn() -> None:
    credential, turns = slow(), FairPasswordVerifier()

    async def scenario() -> None:
        first, *others = (
            asyncio.create_task(turns.verify("10.0.0.6", credential, f"guess {number}")) for number in range(5)
        )
        await asyncio.sleep(0)
        for gone in (others[0], others[2]):
            gone.cancel()
        await asyncio.gather(first, *others, return_exceptions=True)
        assert await turns.verify("10.0.0.6", credential, "right")

    asyncio.run(scenario())

    assert credential.order == ["guess 0", "guess 2", "guess 4", "right"]


def test_a_turn_of_a_verification_that_is_being_cancelled_is_passed_on() -> None:
    credential, turns = slow(), FairPasswordVerifier()

    async def scenario() -> None:
        first = asyncio.create_task(turns.verify("10.0.0.6", credential, "guess"))
        going = asyncio.create_task(turns.verify("10.0.0.6", credential, "gone"))
        # In the same turn of the loop in which the first is done, and the second one is notified.
        first.add_done_callback(lambda _: going.cancel())
        await asyncio.gather(first, going, return_exceptions=True)
        assert going.cancelled()
        assert await asyncio.wait_for(turns.verify("10.0.0.6", credential, "right"), 30)

    asyncio.run(scenario())
