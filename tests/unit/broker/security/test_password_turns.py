"""Who guesses passwords waits for himself, not others for him."""

import asyncio

from holdfast.broker.security.password_turns import PasswordTurns
from holdfast.broker.security.scram import Credential


class Slow(Credential):
    """Compares as usual, and tells in which order."""

    order: list[str]

    def is_of(self, password: str) -> bool:
        self.order.append(password)
        return password == "right"


def slow() -> Slow:
    credential = Slow("SCRAM-SHA-512", 4096, b"", b"", b"")
    object.__setattr__(credential, "order", [])  # it is frozen
    return credential


def test_hosts_take_turns() -> None:
    credential, turns = slow(), PasswordTurns()

    async def scene() -> None:
        guesses = [turns.matches("10.0.0.6", credential, f"guess {number}") for number in range(20)]
        honest = [turns.matches(f"10.0.0.{host}", credential, "right") for host in (7, 8)]
        assert await asyncio.gather(*guesses, *honest) == [False] * 20 + [True] * 2

    asyncio.run(scene())

    assert credential.order[:4] == ["guess 0", "guess 1", "right", "right"]
    assert credential.order[4:] == [f"guess {number}" for number in range(2, 20)]


def test_whoever_has_gone_is_not_waited_for() -> None:
    credential, turns = slow(), PasswordTurns()

    async def scene() -> None:
        first, *others = (
            asyncio.create_task(turns.matches("10.0.0.6", credential, f"guess {number}")) for number in range(5)
        )
        await asyncio.sleep(0)
        for gone in (others[0], others[2]):
            gone.cancel()
        await asyncio.gather(first, *others, return_exceptions=True)
        assert await turns.matches("10.0.0.6", credential, "right")

    asyncio.run(scene())

    assert credential.order == ["guess 0", "guess 2", "guess 4", "right"]


def test_a_turn_that_comes_to_one_who_is_going_is_passed_on() -> None:
    credential, turns = slow(), PasswordTurns()

    async def scene() -> None:
        first = asyncio.create_task(turns.matches("10.0.0.6", credential, "guess"))
        going = asyncio.create_task(turns.matches("10.0.0.6", credential, "gone"))
        # In the same turn of the loop in which the first is done, and the second is told so.
        first.add_done_callback(lambda _: going.cancel())
        await asyncio.gather(first, going, return_exceptions=True)
        assert going.cancelled()
        assert await asyncio.wait_for(turns.matches("10.0.0.6", credential, "right"), 30)

    asyncio.run(scene())
