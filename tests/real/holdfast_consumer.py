"""A `holdfast.Consumer` in a group, in a process of its own; see `tests.groups.consumer_process`."""

from holdfast import Consumer
from holdfast.client.errors import HoldfastError
from tests.groups.confluent_consumer import settings
from tests.groups.consumer_process import (
    POLL_S,
    config_from_arguments,
    stop_on_sigterm,
    tell,
    tell_partitions,
)


def main() -> None:
    asked_to_stop = stop_on_sigterm()
    config = config_from_arguments()
    consumer = Consumer(settings(config) | {"metadata.rebalance.min.interval.ms": config.metadata_max_age_ms})
    consumer.subscribe(
        [config.topic],
        on_assign=lambda _, partitions: tell_partitions("partitions_assigned", partitions),
        on_revoke=lambda _, partitions: tell_partitions("partitions_revoked", partitions),
        on_lost=lambda _, partitions: tell_partitions("partitions_revoked", partitions),
    )
    tell("startup_complete")
    try:
        while not asked_to_stop.is_set():
            try:
                consumer.consume(500, POLL_S)
            except HoldfastError as error:
                if not error.retriable:
                    raise
                tell("error", error=str(error))
    finally:
        consumer.close()
    tell("shutdown_complete")


if __name__ == "__main__":
    main()
