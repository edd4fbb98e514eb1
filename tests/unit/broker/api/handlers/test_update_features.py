"""UpdateFeatures; the expected answers are those of Apache Kafka 4.3 for a feature that it does not know."""

import pytest

from holdfast.wire.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.handler_broker import HandlerBroker

INVALID_UPDATE_VERSION = 95
NOT_SUPPORTED = "Local controller 1 does not support this feature."
FAILED = "The update failed for all features since the following feature had an error: Invalid update version"


def message(broker: HandlerBroker, *updates: FeatureUpdateKey, version: int = 2, validate_only: bool = False) -> str:
    response = broker.ask(UpdateFeaturesRequest(1000, list(updates), validate_only), version)
    assert (response.error_code, response.results) == (INVALID_UPDATE_VERSION, [])
    return str(response.error_message)


@pytest.mark.parametrize("version", range(3))
def test_there_is_no_feature_to_update(broker: HandlerBroker, version: int) -> None:
    for validate_only in (False, version > 0):
        found = message(broker, FeatureUpdateKey("metadata.version", 30), version=version, validate_only=validate_only)
        assert found == f"{FAILED} 30 for feature metadata.version. {NOT_SUPPORTED}"


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdateKey("f", 0), "0 for feature f. Feature f not found."),
        (FeatureUpdateKey("f", -1), "-1 for feature f. A feature version cannot be less than 0."),
        (
            FeatureUpdateKey("f", 1, upgrade_type=2),
            "1 for feature f. Local controller 1 does not support this feature.",
        ),
        *(
            (
                FeatureUpdateKey("f", -1, upgrade_type=kind),
                "-1 for feature f. The controller does not support the given upgrade type.",
            )
            for kind in (0, 4, -1)
        ),
    ],
)
def test_why_an_update_is_refused(broker: HandlerBroker, update: FeatureUpdateKey, reason: str) -> None:
    assert message(broker, update) == f"{FAILED} {reason}"


def test_the_last_update_of_a_feature_counts(broker: HandlerBroker) -> None:
    updates = FeatureUpdateKey("f", 1), FeatureUpdateKey("g", -1), FeatureUpdateKey("f", 0)

    assert message(broker, *updates) == f"{FAILED} 0 for feature f. Feature f not found."


@pytest.mark.parametrize("version", range(3))
def test_nothing_to_update_is_no_error(broker: HandlerBroker, version: int) -> None:
    assert broker.ask(UpdateFeaturesRequest(1000, []), version) == UpdateFeaturesResponse(0, 0, None, [])
