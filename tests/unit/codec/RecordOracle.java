import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads lines of "name version hex", lets Kafka's own class read the bytes and write them again, and prints
 * "name version hex json". Run: java -cp 'kafka/libs/*' RecordOracle.java < lines > kafka_records.txt
 */
public class RecordOracle {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    static Class<?> find(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException next) {
                    // The class lives in another package.
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            short version = Short.parseShort(parts[1]);
            Class<?> type = find(parts[0]);
            Message message = (Message) type.getDeclaredConstructor().newInstance();
            ByteBuffer in = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
            message.read(new ByteBufferAccessor(in), version);
            if (in.hasRemaining()) {
                throw new IllegalStateException("bytes left: " + line);
            }
            ByteBuffer out = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] written = new byte[out.remaining()];
            out.get(written);
            Object json = Class.forName(type.getName() + "JsonConverter")
                .getMethod("write", type, short.class).invoke(null, message, version);
            System.out.println(parts[0] + " " + version + " " + HexFormat.of().formatHex(written) + " " + json);
        }
    }
}
