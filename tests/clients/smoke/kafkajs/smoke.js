// A short conversation with KafkaJS: topics, gzip and none, a group, settings, offsets, deletion.
const assert = require("node:assert");
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require("kafkajs");

const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
const PER_CODEC = 20;

async function produce() {
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  // Other codecs need packages of their own.
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = Array.from({ length: PER_CODEC }, (_, n) => ({
      key: `${compression}-${n}`,
      value: `${compression}-${n}`,
      headers: { codec: String(compression) },
    }));
    await producer.send({ topic, compression, acks: -1, messages });
  }
  await producer.disconnect();
  return 2 * PER_CODEC;
}

async function consume(total) {
  const consumer = kafka.consumer({ groupId: `${topic}-group` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        assert.equal(message.key.toString(), message.value.toString());
        assert.equal(message.headers.codec.toString(), message.key.toString().split("-")[0]);
        seen.add(message.key.toString());
        if (seen.size === total) resolve();
      },
    });
  });
  await consumer.stop();
  await consumer.disconnect();
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  const configEntries = [{ name: "retention.ms", value: "3600000" }];
  assert(await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] }));
  const total = await produce();
  await consume(total);
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.equal(topics[0].partitions.length, 2);
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }] });
  assert.equal(described.resources[0].configEntries[0].configValue, "3600000");
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "7200000" }] }] });
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
  const offsets = await admin.fetchTopicOffsets(topic);
  assert.equal(offsets.reduce((sum, each) => sum + Number(each.offset), 0), total);
  const partitions = offsets.map(({ partition, offset }) => ({ partition, offset }));
  await admin.deleteTopicRecords({ topic, partitions });
  assert.equal((await admin.describeCluster()).brokers.length, 1);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log("SUCCESS");
}

main().catch((failure) => {
  console.error(failure);
  process.exit(1);
});
