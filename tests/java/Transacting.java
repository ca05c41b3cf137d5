import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions by Kafka's Java clients; what is asked and answered stands in tests/clients/transactions/driven.py. */
public final class Transacting {
    private static final Duration POLL = Duration.ofMillis(200);

    private final String bootstrap;
    private final List<Actor> actors = new ArrayList<>();

    private Transacting(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        // Whatever a library prints must not stand between two answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Transacting transacting = new Transacting(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(Driver.JSON.writeValueAsString(transacting.answer(Driver.JSON.readTree(line))));
            answers.flush();
        }
        for (Actor actor : transacting.actors) {
            actor.close();
        }
    }

    private Map<String, Object> answer(JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("value", done(request));
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            // An error that made the producer unusable stands below the one that says so.
            boolean isFinal = false;
            for (Throwable each = cause; each != null; each = each.getCause()) {
                isFinal |= each instanceof ProducerFencedException || each instanceof InvalidProducerEpochException;
            }
            answer.put("refused", Errors.forException(cause) + ": " + cause);
            answer.put("final", isFinal);
        }
        return answer;
    }

    private Object done(JsonNode request) throws Exception {
        switch (request.get("do").asText()) {
            case "producer":
                actors.add(new Actor(request, null));
                return actors.size() - 1;
            case "transformer":
                actors.add(new Actor(request, member(request)));
                return actors.size() - 1;
            case "read":
                return read(request);
            default:
                return actors.get(request.get("actor").asInt()).done(request);
        }
    }

    private KafkaConsumer<String, String> member(JsonNode request) {
        KafkaConsumer<String, String> consumer = consumer(Map.of(
            "group.id", request.get("group").asText(), "auto.offset.reset", "earliest", "max.poll.records", 10,
            "isolation.level", "read_committed"));
        consumer.subscribe(List.of(request.get("topic").asText()));
        return consumer;
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", false);
        settings.put("fetch.max.wait.ms", 50);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Object read(JsonNode request) {
        List<TopicPartition> places = new ArrayList<>();
        List<List<String>> values = new ArrayList<>();
        for (int number = 0; number < request.get("partitions").asInt(); number++) {
            places.add(new TopicPartition(request.get("topic").asText(), number));
            values.add(new ArrayList<>());
        }
        try (KafkaConsumer<String, String> consumer =
                consumer(Map.of("isolation.level", request.get("isolation").asText()))) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (ends.entrySet().stream().anyMatch(each -> consumer.position(each.getKey()) < each.getValue())) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    values.get(record.partition()).add(record.value());
                }
            }
        }
        return values;
    }

    /** A producer that has its transactional id, perhaps with a member of a group beside it. */
    private final class Actor {
        private final KafkaProducer<String, String> producer;
        private final KafkaConsumer<String, String> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        private final Map<TopicPartition, Long> starts = new HashMap<>();
        private ConsumerGroupMetadata identity;

        Actor(JsonNode request, KafkaConsumer<String, String> consumer) {
            this.consumer = consumer;
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", request.get("id").asText(),
                "transaction.timeout.ms", request.get("timeout_ms").asInt());
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
            try {
                producer.initTransactions();
            } catch (RuntimeException refused) {
                close();
                throw refused;
            }
        }

        Object done(JsonNode request) throws Exception {
            switch (request.get("do").asText()) {
                case "begin" -> producer.beginTransaction();
                case "send" -> send(request);
                case "commit" -> {
                    producer.commitTransaction();
                    forget();
                }
                case "abort" -> {
                    producer.abortTransaction();
                    starts.forEach((place, offset) -> consumer.seek(place, offset));
                    forget();
                }
                case "poll" -> {
                    return poll();
                }
                case "positions" -> producer.sendOffsetsToTransaction(ends, identity);
                case "leave" -> consumer.close();
                default -> throw new IllegalArgumentException(request.toString());
            }
            return null;
        }

        private void send(JsonNode request) throws Exception {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode value : request.get("values")) {
                sent.add(producer.send(new ProducerRecord<>(
                    request.get("topic").asText(), request.get("partition").asInt(), null, value.asText())));
            }
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }

        private List<List<Object>> poll() {
            List<List<Object>> found = new ArrayList<>();
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                starts.putIfAbsent(place, record.offset());
                ends.put(place, new OffsetAndMetadata(record.offset() + 1));
                found.add(List.of(record.topic(), record.partition(), record.offset(), record.value()));
            }
            identity = consumer.groupMetadata();
            return found;
        }

        private void forget() {
            starts.clear();
            ends.clear();
        }

        void close() {
            producer.close(Duration.ZERO);
            if (consumer != null) {
                consumer.close();
            }
        }
    }
}
