import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's engine, one connector after another, and writes each record as a line of JSON.
 *
 * <p>Lines on standard input: {@code start <properties file> <output file>} and {@code stop}. Answers on standard
 * output: {@code started}, {@code stopped}, and {@code ended <message>} when a connector ends by itself.
 */
public final class Recorder {
    private static final long STOPS_WITHIN_S = 60;

    private final JsonConverter keys = converter(true);
    private final JsonConverter values = converter(false);
    private final Writer out;

    private Recorder(Path file) throws Exception {
        out = Files.newBufferedWriter(file, StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        DebeziumEngine<?> engine = null;
        ExecutorService thread = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                engine = engine(Path.of(words[1]), new Recorder(Path.of(words[2])));
                thread = Executors.newSingleThreadExecutor();
                thread.execute(engine);
                System.out.println("started");
            } else {
                stop(engine, thread);
                System.out.println("stopped");
            }
            System.out.flush();
        }
        System.exit(0);
    }

    private static DebeziumEngine<?> engine(Path settings, Recorder recorder) throws Exception {
        Properties properties = new Properties();
        try (BufferedReader reader = Files.newBufferedReader(settings, StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
        return DebeziumEngine.create(Connect.class)
                .using(properties)
                .using((success, message, error) -> {
                    if (!success) {
                        String reason = error == null ? message : message + ": " + root(error);
                        System.out.println("ended " + String.valueOf(reason).replace('\n', ' '));
                        System.out.flush();
                    }
                })
                .notifying(recorder::write)
                .build();
    }

    private static void stop(DebeziumEngine<?> engine, ExecutorService thread) throws Exception {
        try {
            engine.close();
        } catch (IllegalStateException alreadyEnded) {
            System.err.println(alreadyEnded.getMessage());
        }
        thread.shutdown();
        thread.awaitTermination(STOPS_WITHIN_S, TimeUnit.SECONDS);
    }

    private static Throwable root(Throwable error) {
        return error.getCause() == null ? error : root(error.getCause());
    }

    private void write(ChangeEvent<SourceRecord, SourceRecord> event) {
        SourceRecord record = event.value();
        try {
            out.write("{\"topic\":");
            out.write(quoted(record.topic()));
            out.write(",\"key\":");
            out.write(json(keys, record.topic(), record.keySchema(), record.key()));
            out.write(",\"value\":");
            out.write(json(values, record.topic(), record.valueSchema(), record.value()));
            out.write(",\"headers\":[");
            String comma = "";
            for (Header each : record.headers()) {
                out.write(comma + "[" + quoted(each.key()) + ",");
                out.write(text(values.fromConnectHeader(record.topic(), each.key(), each.schema(), each.value())));
                out.write("]");
                comma = ",";
            }
            out.write("]}\n");
            out.flush();
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static String json(JsonConverter converter, String topic, Schema schema, Object value) {
        return value == null && schema == null ? "null" : text(converter.fromConnectData(topic, schema, value));
    }

    private static String text(byte[] json) {
        return json == null ? "null" : new String(json, StandardCharsets.UTF_8);
    }

    private static String quoted(String name) {
        return "\"" + name.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    private static JsonConverter converter(boolean isKey) {
        // A null stays null: by default the converter would write a column's default instead, and hide the difference.
        Map<String, String> settings = Map.of("schemas.enable", "true", "replace.null.with.default", "false");
        JsonConverter converter = new JsonConverter();
        converter.configure(settings, isKey);
        return converter;
    }
}
