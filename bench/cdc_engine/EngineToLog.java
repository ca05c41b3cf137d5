import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.JsonByteArray;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs Debezium's engine, one connector after another, and produces its records to a broker.
 *
 * <p>The argument is the address of the broker. The producer has Kafka's defaults: it is idempotent, lingers for 5 ms
 * and waits for all replicas. A batch of the engine is done when the broker has acknowledged all of it. Lines on
 * standard input: {@code start <properties file>} and {@code stop}. Answers on standard output: {@code started},
 * {@code stopped}, and {@code ended <message>} when a connector ends by itself.
 */
public final class EngineToLog {
    private static final long STOPS_WITHIN_S = 60;

    private final KafkaProducer<byte[], byte[]> producer;

    private EngineToLog(String bootstrap) {
        producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] arguments) throws Exception {
        EngineToLog log = new EngineToLog(arguments[0]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        DebeziumEngine<?> engine = null;
        ExecutorService thread = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.startsWith("start ")) {
                engine = log.engine(Path.of(line.substring("start ".length())));
                thread = Executors.newSingleThreadExecutor();
                thread.execute(engine);
                System.out.println("started");
            } else {
                engine.close();
                thread.shutdown();
                thread.awaitTermination(STOPS_WITHIN_S, TimeUnit.SECONDS);
                System.out.println("stopped");
            }
            System.out.flush();
        }
        System.exit(0);
    }

    private DebeziumEngine<?> engine(Path settings) throws Exception {
        Properties properties = new Properties();
        try (BufferedReader reader = Files.newBufferedReader(settings, StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
        return DebeziumEngine.create(JsonByteArray.class)
                .using(properties)
                .using((success, message, error) -> {
                    if (!success) {
                        System.out.println("ended " + String.valueOf(message).replace('\n', ' '));
                        System.out.flush();
                    }
                })
                .notifying(this::write)
                .build();
    }

    private void write(
            List<ChangeEvent<byte[], byte[]>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<byte[], byte[]>> committer)
            throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>(events.size());
        for (ChangeEvent<byte[], byte[]> each : events) {
            sent.add(producer.send(new ProducerRecord<>(each.destination(), each.key(), each.value())));
        }
        for (int at = 0; at < sent.size(); at++) {
            try {
                sent.get(at).get();
            } catch (java.util.concurrent.ExecutionException error) {
                throw new IllegalStateException(error.getCause());
            }
            committer.markProcessed(events.get(at));
        }
        committer.markBatchFinished();
    }
}
