import com.fasterxml.jackson.databind.JsonNode;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group as a process; what it is told and what it says stands in tests/clients/groups/telling.py. */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(100);

    private final FileOutputStream voice = new FileOutputStream(FileDescriptor.out);
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, Long> due = new HashMap<>();

    private GroupMember(JsonNode wanted) {
        boolean isServerSide = wanted.get("protocol").asText().equals("consumer");
        consumer = new KafkaConsumer<>(
            settings(wanted, isServerSide), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (wanted.get("pattern").isNull()) {
            List<String> topics = new ArrayList<>();
            wanted.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics, this);
        } else if (isServerSide) {
            consumer.subscribe(new SubscriptionPattern(wanted.get("pattern").asText()), this);
        } else {
            consumer.subscribe(Pattern.compile(wanted.get("pattern").asText()), this);
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Whatever a library prints must not stand between two lines.
        System.setOut(System.err);
        AtomicBoolean stopping = new AtomicBoolean();
        Thread listener = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (IOException ended) {
                // The other end is gone: then this one goes, too.
            }
            stopping.set(true);
        });
        listener.setDaemon(true);
        listener.start();
        GroupMember member = new GroupMember(Driver.JSON.readTree(arguments[0]));
        while (!stopping.get()) {
            member.poll();
        }
        member.say("closing", Map.of());
        member.consumer.close();
        member.say("closed", Map.of());
    }

    private void poll() {
        List<Object> records = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            records.add(List.of(record.topic(), record.partition(), record.offset(), value));
            due.put(new TopicPartition(record.topic(), record.partition()), record.offset() + 1);
        }
        if (!records.isEmpty()) {
            say("read", Map.of("records", records));
        }
        if (!due.isEmpty()) {
            commit();
        }
    }

    private void commit() {
        long asked = System.nanoTime();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        List<Object> positions = new ArrayList<>();
        due.forEach((place, offset) -> {
            offsets.put(place, new OffsetAndMetadata(offset));
            positions.add(List.of(place.topic(), place.partition(), offset));
        });
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException failure) {
            String why = failure.getClass().getSimpleName();
            say("refused", Map.of("asked", asked, "positions", positions, "why", why));
            return;
        }
        say("committed", Map.of("asked", asked, "positions", positions));
        due.clear();
    }

    // The callbacks run inside poll, when everything that it returned before has been processed.

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        say("assigned", Map.of("places", places(partitions)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        due.keySet().removeAll(partitions);
        say("revoked", Map.of("places", places(partitions)));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        due.keySet().removeAll(partitions);
        say("lost", Map.of("places", places(partitions)));
    }

    private static List<Object> places(Collection<TopicPartition> partitions) {
        List<Object> places = new ArrayList<>();
        partitions.forEach(each -> places.add(List.of(each.topic(), each.partition())));
        return places;
    }

    /** One write for one line, without a buffer: what was said stays said when the process is killed. */
    private void say(String did, Map<String, Object> fields) {
        Map<String, Object> line = new HashMap<>(fields);
        line.put("at", System.nanoTime());
        line.put("did", did);
        try {
            voice.write((Driver.JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException gone) {
            throw new IllegalStateException("nobody listens", gone);
        }
    }

    private static Map<String, Object> settings(JsonNode wanted, boolean isServerSide) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", wanted.get("bootstrap").asText());
        settings.put("group.id", wanted.get("group").asText());
        settings.put("client.id", wanted.get("name").asText());
        settings.put("group.protocol", wanted.get("protocol").asText());
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", 100);
        settings.put("metadata.max.age.ms", wanted.get("metadata_age_ms").asInt());
        settings.put("reconnect.backoff.max.ms", 200);
        if (!wanted.get("instance").isNull()) {
            settings.put("group.instance.id", wanted.get("instance").asText());
        }
        String assignor = wanted.get("assignor").asText();
        if (isServerSide) {
            settings.put("group.remote.assignor", assignor);
        } else {
            String name = assignor.equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + name);
            settings.put("session.timeout.ms", wanted.get("session_ms").asInt());
            settings.put("heartbeat.interval.ms", wanted.get("heartbeat_ms").asInt());
        }
        return settings;
    }
}
