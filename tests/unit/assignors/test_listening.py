"""An assignor hears of its assignment in the form in which it asks (KIP-341)."""

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment
from holdfast.assignors.listening import tell

GIVEN = MemberAssignment({"t": [1]})


class Deaf(Assignor):
    name = "deaf"

    def assign(self, cluster: Cluster, subscriptions: object) -> dict[str, MemberAssignment]:
        raise NotImplementedError


class Old(Deaf):
    heard: object = None

    def on_assignment(self, assignment: MemberAssignment) -> None:
        self.heard = assignment


class New(Deaf):
    heard: object = None

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self.heard = (assignment, generation)


class Any(Deaf):
    heard: object = None

    def on_assignment(self, *everything: object) -> None:
        self.heard = everything


def test_one_argument_is_the_assignment() -> None:
    assignor = Old()

    tell(assignor, GIVEN, 7)

    assert assignor.heard == GIVEN


def test_two_are_the_assignment_and_the_generation() -> None:
    for assignor in (New(), Any()):
        tell(assignor, GIVEN, 7)

        assert assignor.heard == (GIVEN, 7)


def test_who_does_not_listen_is_not_told() -> None:
    tell(Deaf(), GIVEN, 7)


def test_two_assignors_of_one_class_hear_for_themselves() -> None:
    one, other = New(), New()

    tell(one, GIVEN, 7)

    assert other.heard is None
