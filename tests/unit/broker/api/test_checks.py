"""Which check each API has. Authorization is decided there and nowhere else."""

from pathlib import Path
from typing import Final

import holdfast.broker.api.handlers
from holdfast.broker.api.checks import CHECKS, UNCHECKED, checked_handlers
from holdfast.broker.api.registry import HANDLERS

UNRESTRICTED: Final = None

CHECK_OF_API: Final = {
    "Produce": "records.produce",
    "Fetch": "records.fetch",
    "ListOffsets": "records.list_offsets",
    "Metadata": "metadata.metadata",
    "OffsetCommit": "offsets.offset_commit",
    "OffsetFetch": "offsets.offset_fetch",
    "FindCoordinator": "groups.find_coordinator",
    "JoinGroup": "groups.join_group",
    "Heartbeat": "groups.heartbeat",
    "LeaveGroup": "groups.leave_group",
    "SyncGroup": "groups.sync_group",
    "DescribeGroups": "groups.describe_groups",
    "ListGroups": "groups.list_groups",
    "SaslHandshake": UNRESTRICTED,
    "ApiVersions": UNRESTRICTED,
    "CreateTopics": "admin.create_topics",
    "DeleteTopics": "admin.delete_topics",
    "DeleteRecords": "records.delete_records",
    "InitProducerId": "admin.init_producer_id",
    "OffsetForLeaderEpoch": "records.offset_for_leader_epoch",
    "DescribeAcls": "admin.describe_acls",
    "CreateAcls": "admin.create_acls",
    "DeleteAcls": "admin.delete_acls",
    "DescribeConfigs": "admin.describe_configs",
    "AlterConfigs": "admin.alter_configs",
    "DescribeLogDirs": "cluster.describe_log_dirs",
    "SaslAuthenticate": UNRESTRICTED,
    "CreatePartitions": "admin.create_partitions",
    "DeleteGroups": "groups.delete_groups",
    "ElectLeaders": "cluster.elect_leaders",
    "IncrementalAlterConfigs": "admin.incremental_alter_configs",
    "AlterPartitionReassignments": "cluster.alter_partition_reassignments",
    "ListPartitionReassignments": "cluster.list_partition_reassignments",
    "OffsetDelete": "offsets.offset_delete",
    "DescribeClientQuotas": "admin.describe_client_quotas",
    "DescribeUserScramCredentials": "admin.describe_user_scram_credentials",
    "AlterUserScramCredentials": "admin.alter_user_scram_credentials",
    "DescribeQuorum": "cluster.describe_quorum",
    "UpdateFeatures": "cluster.update_features",
    "DescribeCluster": "metadata.describe_cluster",
    "DescribeProducers": "metadata.describe_producers",
    "ConsumerGroupHeartbeat": UNRESTRICTED,
    "ListConfigResources": "cluster.list_config_resources",
    "DescribeTopicPartitions": "metadata.describe_topic_partitions",
    "AddMembersToGroup": "groups.add_members_to_group",
    "CancelRegistration": "groups.cancel_registration",
    "JoinGroups": "groups.join_groups",
}


def test_every_api_has_a_check_or_a_reason_to_have_none() -> None:
    assert set(HANDLERS) == set(CHECKS) | set(UNCHECKED)
    assert not set(CHECKS) & set(UNCHECKED)
    assert set(checked_handlers()) == set(HANDLERS)


def test_the_check_of_each_api() -> None:
    found = {
        handler.api.name: f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
        if (check := CHECKS.get(key)) is not None
        else UNRESTRICTED
        for key, handler in HANDLERS.items()
    }

    assert found == CHECK_OF_API


def test_no_handler_asks_for_permissions() -> None:
    modules = sorted(Path(holdfast.broker.api.handlers.__path__[0]).glob("*.py"))

    assert len(modules) > 40
    assert [module.name for module in modules if ".permissions" in module.read_text()] == []
