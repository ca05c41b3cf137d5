import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share consumers by number. */
final class Sharing implements AutoCloseable {
    private final String bootstrap;
    private final Map<Integer, KafkaShareConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private final Map<Integer, List<ConsumerRecord<byte[], byte[]>>> polled = new HashMap<>();
    private final Set<Integer> renewing = new HashSet<>();
    private int opened;

    Sharing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("share", this::share);
        commands.put("share_poll", this::poll);
        commands.put("share_acknowledge", this::acknowledge);
        commands.put("share_commit", this::commit);
        commands.put("share_close", this::closeOne);
    }

    private Object share(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", request.get("group").asText());
        if (request.has("settings")) {
            request.get("settings").properties()
                .forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        }
        KafkaShareConsumer<byte[], byte[]> consumer =
            new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<String> topics = new ArrayList<>();
        request.get("topics").forEach(each -> topics.add(each.asText()));
        consumer.subscribe(topics);
        consumers.put(++opened, consumer);
        return opened;
    }

    private Object poll(JsonNode request) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        of(request).poll(Duration.ofMillis(request.get("timeout_ms").asLong())).forEach(records::add);
        polled.put(request.get("consumer").asInt(), records);
        List<Map<String, Object>> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            Map<String, Object> each = new HashMap<>();
            each.put("topic", record.topic());
            each.put("partition", record.partition());
            each.put("offset", record.offset());
            each.put("value", new String(record.value(), java.nio.charset.StandardCharsets.UTF_8));
            each.put("count", record.deliveryCount().orElse((short) -1));
            found.add(each);
        }
        return found;
    }

    /** Acknowledges records of the last poll: "types" has a letter for each, as accept, release, reject, renew; "-" for none. */
    private Object acknowledge(JsonNode request) {
        String types = request.get("types").asText();
        List<ConsumerRecord<byte[], byte[]>> records = polled.get(request.get("consumer").asInt());
        for (int at = 0; at < records.size(); at++) {
            char letter = types.charAt(Math.min(at, types.length() - 1));
            if (letter == '-') {
                continue;
            }
            AcknowledgeType type = switch (letter) {
                case 'a' -> AcknowledgeType.ACCEPT;
                case 'l' -> AcknowledgeType.RELEASE;
                case 'j' -> AcknowledgeType.REJECT;
                default -> AcknowledgeType.RENEW;
            };
            of(request).acknowledge(records.get(at), type);
            if (type == AcknowledgeType.RENEW) {
                renewing.add(request.get("consumer").asInt());
            }
        }
        return null;
    }

    /** Returns the error of each partition, or null. Renewed records are polled again: only then can they be acknowledged. */
    private Object commit(JsonNode request) {
        Map<String, Object> outcome = new HashMap<>();
        of(request).commitSync().forEach((TopicIdPartition place, java.util.Optional<org.apache.kafka.common.KafkaException> error) ->
            outcome.put(place.topic() + "-" + place.partition(), error.map(Throwable::toString).orElse(null)));
        if (renewing.remove(request.get("consumer").asInt())) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            of(request).poll(Duration.ofSeconds(10)).forEach(records::add);
            polled.put(request.get("consumer").asInt(), records);
        }
        return outcome;
    }

    private Object closeOne(JsonNode request) {
        consumers.remove(request.get("consumer").asInt()).close();
        return null;
    }

    private KafkaShareConsumer<byte[], byte[]> of(JsonNode request) {
        return consumers.get(request.get("consumer").asInt());
    }

    @Override
    public void close() {
        consumers.values().forEach(KafkaShareConsumer::close);
    }
}
