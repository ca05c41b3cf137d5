// KafkaJS with its registry client: each schema type registered, written and read through a topic, references, and a
// change that is rejected.
const assert = require("node:assert");
const { Kafka, logLevel } = require("kafkajs");
const { COMPATIBILITY, SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

const [bootstrap, url, topic] = process.argv.slice(2);

const fields = [{ name: "id", type: "int" }];
const order = { type: "record", name: "Order", namespace: "sea", fields };
const ship = { type: "record", name: "Ship", namespace: "sea", fields: [{ name: "first", type: "sea.Order" }] };
const json = { type: "object", properties: { id: { type: "integer" } }, required: ["id"], additionalProperties: false };
const proto = 'syntax = "proto3"; package sea; message Boat { int32 id = 1; string name = 2; }';

async function main() {
  const registry = new SchemaRegistry({ host: url });
  const cases = [];

  const avro = await registry.register(
    { type: SchemaType.AVRO, schema: JSON.stringify(order) },
    { subject: `${topic}-avro-value`, compatibility: COMPATIBILITY.BACKWARD },
  );
  cases.push([avro.id, { id: 7 }]);
  assert.equal(await registry.getLatestSchemaId(`${topic}-avro-value`), avro.id);
  assert.equal(await registry.getRegistryId(`${topic}-avro-value`, 1), avro.id);
  assert.equal(
    await registry.getRegistryIdBySchema(`${topic}-avro-value`, { type: SchemaType.AVRO, schema: JSON.stringify(order) }),
    avro.id,
  );

  const references = [{ name: "sea.Order", subject: `${topic}-avro-value`, version: 1 }];
  const referring = await registry.register(
    { type: SchemaType.AVRO, schema: JSON.stringify(ship), references },
    { subject: `${topic}-ship-value` },
  );
  cases.push([referring.id, { first: { id: 3 } }]);

  const jsonSchema = await registry.register(
    { type: SchemaType.JSON, schema: JSON.stringify(json) },
    { subject: `${topic}-json-value` },
  );
  cases.push([jsonSchema.id, { id: 9 }]);
  await assert.rejects(registry.encode(jsonSchema.id, { id: "nine" }));

  const protobuf = await registry.register({ type: SchemaType.PROTOBUF, schema: proto }, { subject: `${topic}-proto-value` });
  cases.push([protobuf.id, { id: 11, name: "ada" }]);

  const incompatible = { ...order, fields: [...fields, { name: "port", type: "string" }] };
  await assert.rejects(
    registry.register(
      { type: SchemaType.AVRO, schema: JSON.stringify(incompatible) },
      { subject: `${topic}-avro-value`, compatibility: COMPATIBILITY.BACKWARD },
    ),
    (error) => error.status === 409,
  );

  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const producer = kafka.producer();
  await producer.connect();
  for (const [id, value] of cases) {
    await producer.send({ topic, messages: [{ value: await registry.encode(id, value) }] });
  }
  await producer.disconnect();

  // Another client, which knows no schema yet.
  const reader = new SchemaRegistry({ host: url });
  const consumer = kafka.consumer({ groupId: `kafkajs-${topic}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.push(await reader.decode(message.value));
        if (seen.length === cases.length) resolve();
      },
    });
  });
  await consumer.disconnect();
  assert.deepEqual(JSON.parse(JSON.stringify(seen)), cases.map(([, value]) => value));
  console.log("SUCCESS");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
