import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes records and tells where they went. */
final class Producing implements AutoCloseable {
    private final String bootstrap;

    Producing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("produce", this::produce);
    }

    private Object produce(JsonNode request) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "acks", request.get("acks").asText(),
            "compression.type", request.get("codec").asText(),
            "enable.idempotence", request.get("idempotent").asBoolean(),
            "linger.ms", request.get("linger_ms").asInt(),
            "max.request.size", 10_000_000,
            "request.timeout.ms", 20_000,
            "delivery.timeout.ms", 30_000);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<List<Long>> places = new ArrayList<>();
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            for (JsonNode each : request.get("records")) {
                sent.add(producer.send(record(request.get("topic").asText(), each)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata place = future.get();
                places.add(List.of((long) place.partition(), place.hasOffset() ? place.offset() : -1));
            }
        }
        return places;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode each) throws Exception {
        Integer partition = each.get("partition").isNull() ? null : (Integer) each.get("partition").asInt();
        Long timestamp = each.get("timestamp_ms").isNull() ? null : (Long) each.get("timestamp_ms").asLong();
        byte[] key = Driver.bytes(each.get("key"));
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, partition, timestamp, key, Driver.bytes(each.get("value")));
        for (JsonNode header : each.get("headers")) {
            record.headers().add(new RecordHeader(header.get(0).asText(), Driver.bytes(header.get(1))));
        }
        return record;
    }

    @Override
    public void close() {
        // Each request has a producer of its own.
    }
}
