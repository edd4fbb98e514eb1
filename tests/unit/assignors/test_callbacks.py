"""An assignor hears of its assignment in the form in which it asks (KIP-341)."""

from holdfast.assignors.callbacks import notify_assignment
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment

GIVEN = MemberAssignment({"t": [1]})


class WithoutCallback(Assignor):
    name = "deaf"

    def assign(self, cluster: Cluster, subscriptions: object) -> dict[str, MemberAssignment]:
        raise NotImplementedError


class OldCallback(WithoutCallback):
    notified: object = None

    def on_assignment(self, assignment: MemberAssignment) -> None:
        self.notified = assignment


class NewCallback(WithoutCallback):
    notified: object = None

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self.notified = (assignment, generation)


class AnyArguments(WithoutCallback):
    notified: object = None

    def on_assignment(self, *everything: object) -> None:
        self.notified = everything


def test_one_argument_is_the_assignment() -> None:
    assignor = OldCallback()

    notify_assignment(assignor, GIVEN, 7)

    assert assignor.notified == GIVEN


def test_two_are_the_assignment_and_the_generation() -> None:
    for assignor in (NewCallback(), AnyArguments()):
        notify_assignment(assignor, GIVEN, 7)

        assert assignor.notified == (GIVEN, 7)


def test_an_assignor_without_a_callback_is_not_notified() -> None:
    notify_assignment(WithoutCallback(), GIVEN, 7)


def test_two_assignors_of_one_class_are_notified_separately() -> None:
    one, other = NewCallback(), NewCallback()

    notify_assignment(one, GIVEN, 7)

    assert other.notified is None
