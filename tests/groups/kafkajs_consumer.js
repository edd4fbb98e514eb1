// A kafkajs consumer in a group; it tells what happens as consumer_process.py does.
// usage: node kafkajs_consumer.js DIRECTORY-OF-KAFKAJS CONFIG-AS-JSON
'use strict'

const [kafkajsPath, configText] = process.argv.slice(2)
const { Kafka, logLevel, AssignerProtocol } = require(kafkajsPath)
const config = JSON.parse(configText)

const tell = (name, fields = {}) => console.log(JSON.stringify({ name, ...fields }))

// kafkajs brings one assigner of its own, under a name that no other client knows. This one has Kafka's name and rule:
// per topic, the members in order of their ids get runs of partitions, the first ones one more.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members, topics }) {
    const ids = members.map(({ memberId }) => memberId).sort()
    const assignment = Object.fromEntries(ids.map((id) => [id, {}]))
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => partitionId)
      partitions.sort((a, b) => a - b)
      const least = Math.floor(partitions.length / ids.length)
      const withOneMore = partitions.length % ids.length
      ids.forEach((id, index) => {
        const more = index < withOneMore ? 1 : 0
        assignment[id][topic] = partitions.splice(0, least + more)
      })
    }
    return ids.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: this.version,
        assignment: assignment[memberId],
        userData: Buffer.alloc(0),
      }),
    }))
  },
  protocol({ topics }) {
    return {
      name: this.name,
      metadata: AssignerProtocol.MemberMetadata.encode({ version: this.version, topics, userData: Buffer.alloc(0) }),
    }
  },
})

const kafka = new Kafka({ clientId: 'kafkajs', brokers: [config.bootstrap], logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({
  groupId: config.group,
  partitionAssigners: [range],
  sessionTimeout: config.session_timeout_ms,
  heartbeatInterval: config.heartbeat_interval_ms,
  metadataMaxAge: config.metadata_max_age_ms,
  maxWaitTimeInMs: 200, // it hears of a rebalance only between two fetches
})

let held = []

function revoke() {
  if (held.length > 0) tell('partitions_revoked', { partitions: held })
  held = []
}

// kafkajs tells of a rebalance and of its outcome, not of partitions that come and go.
consumer.on(consumer.events.REBALANCING, revoke)
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  revoke()
  held = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
    partitions.map((partition) => ({ topic, partition }))
  )
  tell('partitions_assigned', { partitions: held })
})
consumer.on(consumer.events.CRASH, ({ payload }) => tell('error', { error: String(payload.error) }))

async function eachBatch({ batch, resolveOffset, heartbeat }) {
  const { topic, partition } = batch
  const offsets = batch.messages.map(({ offset }) => Number(offset))
  if (offsets.length === 0) return
  const [minOffset, maxOffset] = [offsets[0], offsets[offsets.length - 1]]
  tell('records_consumed', {
    count: offsets.length,
    partitions: [{ topic, partition, count: offsets.length, minOffset, maxOffset }],
  })
  await consumer.commitOffsets([{ topic, partition, offset: String(maxOffset + 1) }])
  tell('offsets_committed', { offsets: [{ topic, partition, offset: maxOffset + 1 }], success: true })
  resolveOffset(String(maxOffset))
  await heartbeat()
}

async function main() {
  process.once('SIGTERM', async () => {
    await consumer.disconnect()
    tell('shutdown_complete')
    process.exit(0)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [config.topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  tell('startup_complete')
}

main().catch((error) => {
  tell('error', { error: String(error) })
  process.exit(1)
})
