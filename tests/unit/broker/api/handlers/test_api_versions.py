"""What docs/differences.md says of ApiVersions, as far as it is known without a Kafka beside it."""

import holdfast.broker.api.handlers  # noqa: F401  # registers every handler
from holdfast.broker.api.registry import HANDLERS
from tests.support.differences_page import missing_apis, other_versions


def test_no_api_that_is_listed_as_missing_is_served() -> None:
    listed = missing_apis()

    assert listed
    assert not {key: name for key, name in listed.items() if key in HANDLERS}


def test_the_listed_versions_are_ours() -> None:
    for key, (name, _, ours) in other_versions().items():
        handler = HANDLERS[key]
        lowest, highest = handler.advertised
        assert (handler.api.name, f"{lowest}–{highest}") == (name, ours)  # as the page writes it
