"""Tools that know nothing of Holdfast set its group configs, and show the groups that have registered members."""

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from tests.client_compat.servers import Server
from tests.groups.extension_requests import configs_of, configure, expected_of, extensions_of, register
from tests.groups.members import CONFLUENT, StartMember, await_shared
from tests.groups.test_java_tools import groups_tool, table
from tests.groups.topics import PARTITIONS, make_topic
from tests.support.eventually import eventually
from tests.support.kafka_distribution import kafka_tool

CONFIGS = "kafka.admin.ConfigCommand"


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("apache_kafka_distribution")
def test_kafka_configs_sets_shows_and_takes_back(quick_holdfast: Server, group: str) -> None:
    server = quick_holdfast

    # when
    configs_tool(server, group, "--alter", "--add-config", "target.group.size=3,standby.takeover.ms=2000")

    # then
    shown = configs_tool(server, group, "--describe")
    assert "target.group.size=3" in shown
    assert "standby.takeover.ms=2000" in shown
    assert configs_of(server, group) == {"target.group.size": "3", "standby.takeover.ms": "2000"}

    # when
    configs_tool(server, group, "--alter", "--delete-config", "target.group.size")

    # then
    assert "target.group.size=3" not in configs_tool(server, group, "--describe")
    assert configs_of(server, group) == {"target.group.size": "0", "standby.takeover.ms": "2000"}


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("apache_kafka_distribution")
def test_kafka_configs_reports_what_is_wrong(quick_holdfast: Server, group: str) -> None:
    for wrong in ("target.group.size=-1", "target.group.size=many", "standby.takeover.ms=0"):
        with pytest.raises(RuntimeError) as refused:
            configs_tool(quick_holdfast, group, "--alter", "--add-config", wrong)
        assert "InvalidConfigurationException" in str(refused.value)
        assert wrong.split("=")[0] in str(refused.value)


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("apache_kafka_distribution")
def test_the_groups_tool_describes_a_group_with_standbys_and_registered_members(
    quick_holdfast: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given two active members, a standby, and an expected member
    server = quick_holdfast
    make_topic(server, topic_name)
    configure(server, group, target_group_size=2)
    members = [start_member(CONFLUENT, server.bootstrap, instance_id=name) for name in ("a", "b")]
    await_shared(members, PARTITIONS)
    start_member(CONFLUENT, server.bootstrap, instance_id="standby")
    eventually(lambda: extensions_of(server, group).standbys, "the standby waits")
    register(server, group, "late")

    # when
    members_shown = table(groups_tool(server, "--group", group, "--describe", "--members"))
    (state,) = table(groups_tool(server, "--group", group, "--describe", "--state"))

    # then
    assignments = {row["GROUP-INSTANCE-ID"]: int(row["#PARTITIONS"]) for row in members_shown}
    assert assignments == {"a": 2, "b": 2, "standby": 0}
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "3")
    assert expected_of(server, group) == {"late"}


def test_kafka_pythons_admin_sets_a_group_config(quick_holdfast: Server, group: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=quick_holdfast.bootstrap)
    try:
        admin.alter_configs(
            [ConfigResource(ConfigResourceType.GROUP, group, {"target.group.size": "3"})], incremental=True
        )
    finally:
        admin.close()

    assert configs_of(quick_holdfast, group)["target.group.size"] == "3"


def configs_tool(server: Server, group: str, *arguments: str) -> str:
    entity = ("--entity-type", "groups", "--entity-name", group)
    return kafka_tool(CONFIGS, "--bootstrap-server", server.bootstrap, *entity, *arguments)
