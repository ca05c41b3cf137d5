// Every way into a secured node: the cells come as JSON, and each writes a record and reads it again.
const assert = require("node:assert");
const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

function settings(cell) {
  const given = { brokers: [cell.bootstrap], logLevel: logLevel.ERROR };
  if (cell.authority) {
    given.ssl = { ca: [fs.readFileSync(cell.authority)] };
    if (cell.certificate) {
      const own = fs.readFileSync(cell.certificate);
      Object.assign(given.ssl, { key: own, cert: own });
    }
  }
  if (cell.mechanism === "OAUTHBEARER") {
    given.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: cell.token }) };
  } else if (cell.mechanism) {
    given.sasl = { mechanism: cell.mechanism.toLowerCase(), username: cell.user, password: cell.password };
  }
  return given;
}

async function roundTrip(cell) {
  const kafka = new Kafka(settings(cell));
  const producer = kafka.producer();
  await producer.connect();
  const [written] = await producer.send({ topic: cell.topic, messages: [{ value: cell.name }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `kafkajs-${cell.name}` });
  await consumer.connect();
  await consumer.subscribe({ topic: cell.topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        if (message.offset === written.baseOffset) resolve(assert.equal(message.value.toString(), cell.name));
      },
    });
  });
  await consumer.disconnect();
}

async function main() {
  for (const cell of JSON.parse(fs.readFileSync(process.argv[2]))) {
    await roundTrip(cell);
    console.log("SUCCESS", cell.name);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
