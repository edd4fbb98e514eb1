"""A `holdfast.Consumer` in a group, in a process of its own; see `tests.groups.consumer_process`."""

from examples.demo.stop_signal import StopSignal
from holdfast import Consumer
from holdfast.client.errors import HoldfastError
from tests.groups.confluent_consumer import settings
from tests.groups.consumer_process import (
    POLL_S,
    config_from_arguments,
    report,
    report_partitions,
)


def main() -> None:
    asked_to_stop = StopSignal()
    config = config_from_arguments()
    consumer = Consumer(settings(config) | {"metadata.rebalance.min.interval.ms": config.metadata_max_age_ms})
    consumer.subscribe(
        [config.topic],
        on_assign=lambda _, partitions: report_partitions("partitions_assigned", partitions),
        on_revoke=lambda _, partitions: report_partitions("partitions_revoked", partitions),
        on_lost=lambda _, partitions: report_partitions("partitions_revoked", partitions),
    )
    report("startup_complete")
    try:
        while not asked_to_stop.is_set():
            try:
                consumer.consume(500, POLL_S)
            except HoldfastError as error:
                if not error.retriable:
                    raise
                report("error", error=str(error))
    finally:
        consumer.close()
    report("shutdown_complete")


if __name__ == "__main__":
    main()
