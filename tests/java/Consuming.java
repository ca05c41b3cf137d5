import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers by number: readers of assigned partitions, and members of groups. */
final class Consuming implements AutoCloseable {
    private static final Duration POLL = Duration.ofMillis(100);

    private final String bootstrap;
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private int opened;

    Consuming(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("assign", this::assign);
        commands.put("subscribe", this::subscribe);
        commands.put("poll", this::poll);
        commands.put("seek", this::seek);
        commands.put("pause", request -> done(() -> of(request).pause(List.of(place(request)))));
        commands.put("resume", request -> done(() -> of(request).resume(List.of(place(request)))));
        commands.put("assignment", this::assignment);
        commands.put("commit", request -> done(() -> of(request).commitSync()));
        commands.put("close", request -> done(() -> consumers.remove(request.get("consumer").asInt()).close()));
        commands.put("committed", this::committed);
    }

    private Object assign(JsonNode request) {
        Map<String, Object> settings = settings(request);
        KafkaConsumer<byte[], byte[]> consumer = open(settings);
        Map<TopicPartition, Long> starts = new HashMap<>();
        request.get("starts").properties().forEach(each -> starts.put(
            new TopicPartition(request.get("topic").asText(), Integer.parseInt(each.getKey())),
            each.getValue().asLong()));
        consumer.assign(starts.keySet());
        starts.forEach(consumer::seek);
        return opened;
    }

    private Object subscribe(JsonNode request) {
        Map<String, Object> settings = settings(request);
        settings.put("group.id", request.get("group").asText());
        settings.put("session.timeout.ms", 10_000);
        settings.put("heartbeat.interval.ms", 500);
        open(settings).subscribe(List.of(request.get("topic").asText()));
        return opened;
    }

    private Object poll(JsonNode request) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : of(request).poll(POLL)) {
            Map<String, Object> each = new HashMap<>();
            each.put("partition", record.partition());
            each.put("offset", record.offset());
            each.put("key", record.key());
            each.put("value", record.value());
            each.put("timestamp_ms", record.timestamp());
            each.put("is_append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
            List<Object[]> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add(new Object[] {header.key(), header.value()});
            }
            each.put("headers", headers);
            found.add(each);
        }
        return found;
    }

    private Object seek(JsonNode request) {
        of(request).seek(place(request), request.get("offset").asLong());
        return null;
    }

    private Object assignment(JsonNode request) {
        Set<Integer> partitions = new TreeSet<>();
        of(request).assignment().forEach(place -> partitions.add(place.partition()));
        return partitions;
    }

    private Object committed(JsonNode request) {
        Map<String, Object> settings = settings(request);
        settings.put("group.id", request.get("group").asText());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            OffsetAndMetadata committed = consumer.committed(Set.of(place(request))).get(place(request));
            return committed == null ? null : committed.offset();
        }
    }

    /** Kafka's own words for the settings come with the request. */
    private Map<String, Object> settings(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", false);
        settings.put("fetch.max.wait.ms", 100);
        settings.put("max.poll.records", 1000);
        if (request.has("settings")) {
            request.get("settings").properties()
                .forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        }
        return settings;
    }

    private KafkaConsumer<byte[], byte[]> open(Map<String, Object> settings) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(settings);
        consumers.put(++opened, consumer);
        return consumer;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaConsumer<byte[], byte[]> of(JsonNode request) {
        return consumers.get(request.get("consumer").asInt());
    }

    private static TopicPartition place(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static Object done(Runnable action) {
        action.run();
        return null;
    }

    @Override
    public void close() {
        consumers.values().forEach(KafkaConsumer::close);
    }
}
