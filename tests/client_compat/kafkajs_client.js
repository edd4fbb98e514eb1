// kafkajs, driven from outside: one call per line of stdin, one answer per line of stdout, both JSON. Calls run beside
// each other, and an answer carries the id of its call: `result`, or `error`, the protocol's code, and `message`. Bytes
// are base64. kafkajs_client.py writes the calls.
// usage: node kafkajs_client.js DIRECTORY-OF-KAFKAJS
'use strict'

const { createInterface } = require('node:readline')
const { randomUUID } = require('node:crypto')
const { Kafka, logLevel, CompressionTypes, ConfigResourceTypes } = require(process.argv[2])

const BEGINNING = -2
const END = -1

// Its own patience with a connection is one second, which a busy machine may take from us.
const PATIENCE_MS = 30_000

const kafkaAt = (bootstrap) =>
  new Kafka({
    clientId: 'kafkajs',
    brokers: [bootstrap],
    connectionTimeout: PATIENCE_MS,
    logLevel: logLevel.NOTHING,
  })
const bytes = (base64) => (base64 === null ? null : Buffer.from(base64, 'base64'))
const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))

// -- producing --------------------------------------------------------------------------------------------------------

// Headers are an object: several values of one name are neighbours, wherever they stood.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ||= []).push(bytes(value))
  return headers
}

async function produce({ bootstrap, topic, partition, records, acks, idempotent, compression }) {
  const producer = kafkaAt(bootstrap).producer({ idempotent })
  await producer.connect()
  try {
    const messages = records.map(({ key, value, headers, timestamp }) => ({
      key: bytes(key),
      value: bytes(value),
      headers: headersOf(headers),
      partition,
      ...(timestamp === null ? {} : { timestamp: String(timestamp) }),
    }))
    await producer.send({ topic, messages, acks, compression: CompressionTypes[compression] })
  } finally {
    await producer.disconnect()
  }
}

async function begin_transaction({ bootstrap, transactional_id }) {
  const producer = kafkaAt(bootstrap).producer({
    transactionalId: transactional_id,
    maxInFlightRequests: 1,
    idempotent: true,
    retry: { retries: 1 },
  })
  await producer.connect()
  try {
    await producer.transaction()
  } finally {
    await producer.disconnect()
  }
}

// -- reading ----------------------------------------------------------------------------------------------------------

// A consumer is always the member of a group: here of one of its own, in which it looks at one partition only.
class Reader {
  constructor(bootstrap, topic, partition, fetchWaitMs) {
    Object.assign(this, { bootstrap, topic, partition, buffer: [], wanted: null, woken: () => {} })
    this.consumer = kafkaAt(bootstrap).consumer({ groupId: `reader-${randomUUID()}`, maxWaitTimeInMs: fetchWaitMs })
  }

  async open(start) {
    const { consumer, topic, partition } = this
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: start === BEGINNING })
    const assigned = new Promise((resolve) => {
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        const others = payload.memberAssignment[topic].filter((one) => one !== partition)
        if (others.length > 0) consumer.pause([{ topic, partitions: others }])
        if (start >= 0) this.seek(start)
        resolve()
      })
    })
    await consumer.run({ autoCommit: false, eachBatch: ({ batch }) => this.take(batch) })
    await assigned
  }

  seek(offset) {
    this.buffer = []
    this.wanted = String(offset)
    this.consumer.seek({ topic: this.topic, partition: this.partition, offset: this.wanted })
  }

  async take(batch) {
    if (batch.partition !== this.partition) return
    for (const message of batch.messages) {
      // What was under way when somebody sought belongs to nobody.
      if (this.wanted !== null && message.offset !== this.wanted) continue
      this.wanted = null
      this.buffer.push(stored(message))
    }
    this.woken()
  }

  async poll(timeoutMs) {
    if (this.buffer.length === 0) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, timeoutMs)
        this.woken = () => {
          if (this.buffer.length === 0) return
          clearTimeout(timer)
          resolve()
        }
      })
    }
    return this.buffer.splice(0)
  }
}

function stored({ offset, timestamp, key, value, headers }) {
  const pairs = Object.entries(headers || {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map((one) => [name, text(one)])
  )
  return { offset: Number(offset), timestamp: Number(timestamp), key: text(key), value: text(value), headers: pairs }
}

const readers = new Map()

async function open({ bootstrap, topic, partition, start, fetch_wait_ms }) {
  const reader = new Reader(bootstrap, topic, partition, fetch_wait_ms)
  const number = readers.size + 1
  readers.set(number, reader)
  await reader.open(start)
  return number
}

const seek = async ({ reader, offset }) => readers.get(reader).seek(offset)
const poll = ({ reader, timeout_ms }) => readers.get(reader).poll(timeout_ms)
const close = ({ reader }) => readers.get(reader).consumer.disconnect()

// -- topics -----------------------------------------------------------------------------------------------------------

async function withAdmin(bootstrap, use) {
  const admin = kafkaAt(bootstrap).admin({ retry: { retries: 2 } })
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

const offset_for_time = ({ bootstrap, topic, partition, timestamp_ms }) =>
  withAdmin(bootstrap, async (admin) => {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp_ms)
    return Number(found.find((one) => one.partition === partition).offset)
  })

const watermarks = ({ bootstrap, topic, partition }) =>
  withAdmin(bootstrap, async (admin) => {
    const { low, high } = (await admin.fetchTopicOffsets(topic)).find((one) => one.partition === partition)
    return [Number(low), Number(high)]
  })

const topics = ({ bootstrap }) =>
  withAdmin(bootstrap, async (admin) => {
    const found = await admin.fetchTopicMetadata()
    return Object.fromEntries(found.topics.map(({ name, partitions }) => [name, partitions.length]))
  })

const create_topic = ({ bootstrap, topic, partitions, configs }) =>
  withAdmin(bootstrap, async (admin) => {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries }
    // It tells of a topic that exists by a mere false.
    // Its own waiting for leaders gives up on a Kafka that has not heard of the topic yet; our caller waits.
    return await admin.createTopics({ topics: [wanted], waitForLeaders: false })
  })

const delete_topic = ({ bootstrap, topic }) => withAdmin(bootstrap, (admin) => admin.deleteTopics({ topics: [topic] }))

const grow_topic = ({ bootstrap, topic, partitions }) =>
  withAdmin(bootstrap, (admin) => admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }))

const topic_configs = ({ bootstrap, topic }) =>
  withAdmin(bootstrap, async (admin) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const described = await admin.describeConfigs({ resources, includeSynonyms: false })
    const entries = described.resources[0].configEntries
    return Object.fromEntries(entries.map(({ configName, configValue }) => [configName, configValue]))
  })

const set_topic_config = ({ bootstrap, topic, name, value }) =>
  withAdmin(bootstrap, (admin) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }]
    return admin.alterConfigs({ validateOnly: false, resources })
  })

// -- calls ------------------------------------------------------------------------------------------------------------

const CALLS = {
  produce, begin_transaction, open, seek, poll, close, offset_for_time, watermarks, topics, create_topic, delete_topic,
  grow_topic, topic_configs, set_topic_config,
}

// An error of several is as good as its first; a wrapped one as what it wraps.
function innermost(error) {
  if (Array.isArray(error.errors) && error.errors.length > 0) return innermost(error.errors[0])
  const cause = error.originalError || error.cause
  return cause && error.code === undefined ? innermost(cause) : error
}

async function answer({ id, call, ...given }) {
  try {
    const result = await CALLS[call](given)
    return { id, result: result === undefined ? null : result }
  } catch (error) {
    const cause = innermost(error)
    return { id, error: typeof cause.code === 'number' ? cause.code : -1, message: String(cause) }
  }
}

createInterface({ input: process.stdin })
  .on('line', async (line) => console.log(JSON.stringify(await answer(JSON.parse(line)))))
  .on('close', () => process.exit(0))
