"""Run as a program: claims the group log and appends commits of rising offsets until it is killed.

Prints "serving" when all partitions are served, and then the offset of each commit that is acknowledged.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.gateway.state.append_queue import WriterLimits
from holdfast.wire.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from tests.gateway.group_log_gateway import NOW_MS, LogGateway

GROUPS = 40


def commit(group: str, offset: int) -> GroupRecord:
    return OffsetCommitKey(group, "orders", 0), OffsetCommitValue(offset, -1, "", NOW_MS)


async def append_for_ever(gateway: LogGateway, group: str) -> None:
    offset = 0
    while True:
        await gateway.log.append(group, [commit(group, offset)], NOW_MS)
        sys.stdout.write(f"{group} {offset}\n")
        sys.stdout.flush()
        offset += 1


async def main(bootstrap: str) -> None:
    gateway = await LogGateway.started(bootstrap, WriterLimits())
    await gateway.owner.serving()
    print("serving", flush=True)
    await asyncio.gather(*[append_for_ever(gateway, f"group-{number}") for number in range(GROUPS)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
