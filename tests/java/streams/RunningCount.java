import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the records of each key; every record that comes in gives one with its key, the new count and its value.
 *
 * <p>The argument is a file with the settings of Kafka Streams, and the topics {@code source} and {@code target}.
 */
public final class RunningCount {
    private RunningCount() {
    }

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(settings.getProperty("source"), Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .aggregate(() -> "0", RunningCount::counted, Materialized.with(Serdes.String(), Serdes.String()))
            .toStream()
            .mapValues((key, counted) -> key + " " + counted)
            .to(settings.getProperty("target"), Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        // The default ends the application at the first failure that a thread cannot handle.
        streams.setUncaughtExceptionHandler(failure -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.start();
    }

    private static String counted(String key, String value, String last) {
        long count = Long.parseLong(last.split(" ")[0]) + 1;
        return count + " " + value;
    }
}
