// Runs Apache Kafka's converters and transforms over the cases on standard input, a JSON list, and prints the list with
// what each gave. Values go in and out as the JSON with schemas of Kafka's own JsonConverter.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.text.ParsePosition;
import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

public class Recorder {
    static final ObjectMapper JSON = new ObjectMapper();
    static final JsonConverter ENVELOPE = new JsonConverter();
    static final SimpleHeaderConverter HEADERS = new SimpleHeaderConverter();

    public static void main(String[] arguments) throws Exception {
        ENVELOPE.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        ArrayNode cases = (ArrayNode) JSON.readTree(System.in);
        for (JsonNode each : cases) {
            ObjectNode one = (ObjectNode) each;
            try {
                one.set("expected", run(one));
            } catch (Exception error) {
                Throwable cause = error;
                one.putObject("expected").put("error", String.valueOf(cause.getMessage()));
            }
        }
        System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(cases));
    }

    static JsonNode run(ObjectNode one) throws Exception {
        switch (one.get("kind").asText()) {
            case "write":
                SchemaAndValue written = value(one.get("value"));
                return hex(converter(one).fromConnectData("t", written.schema(), written.value()));
            case "read":
                return text(converter(one).toConnectData("t", one.get("data").asText().getBytes(StandardCharsets.UTF_8)));
            case "read_hex":
                return text(converter(one).toConnectData("t", HexFormat.of().parseHex(one.get("data").asText())));
            case "write_header":
                SchemaAndValue header = value(one.get("value"));
                byte[] bytes = HEADERS.fromConnectHeader("t", "h", header.schema(), header.value());
                return JSON.createObjectNode().put("text", new String(bytes, StandardCharsets.UTF_8));
            case "read_header":
                return text(HEADERS.toConnectHeader("t", "h", one.get("data").asText().getBytes(StandardCharsets.UTF_8)));
            case "transform":
                return transformed(one);
            case "options":
                return options(one);
            case "format":
                return JSON.createObjectNode().put("text", format(one).format(new Date(one.get("ms").asLong())));
            case "parse":
                Date found = format(one).parse(one.get("data").asText(), new ParsePosition(0));
                return found == null ? JSON.createObjectNode().putNull("ms") : JSON.createObjectNode().put("ms", found.getTime());
        }
        throw new IllegalArgumentException(one.get("kind").asText());
    }

    static SimpleDateFormat format(ObjectNode one) {
        SimpleDateFormat format = new SimpleDateFormat(one.get("pattern").asText());
        format.setTimeZone(TimeZone.getTimeZone("UTC"));
        return format;
    }

    static Map<String, String> properties(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        node.properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    static Converter converter(ObjectNode one) throws Exception {
        Converter converter = (Converter) Class.forName(one.get("converter").asText()).getDeclaredConstructor().newInstance();
        converter.configure(properties(one.get("config")), false);
        return converter;
    }

    static SchemaAndValue value(JsonNode envelope) throws Exception {
        if (envelope == null || envelope.isNull()) return SchemaAndValue.NULL;
        return ENVELOPE.toConnectData("t", JSON.writeValueAsBytes(envelope));
    }

    static ObjectNode hex(byte[] bytes) {
        ObjectNode found = JSON.createObjectNode();
        return bytes == null ? found.putNull("hex") : found.put("hex", HexFormat.of().formatHex(bytes));
    }

    static ObjectNode text(SchemaAndValue found) {
        return JSON.createObjectNode().put("text", envelope(found.schema(), found.value()));
    }

    static String envelope(org.apache.kafka.connect.data.Schema schema, Object value) {
        byte[] bytes = ENVELOPE.fromConnectData("t", schema, value);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static JsonNode transformed(ObjectNode one) throws Exception {
        Map<String, String> config = properties(one.get("config"));
        Transformation transformation =
            (Transformation) Class.forName(one.get("type").asText()).getDeclaredConstructor().newInstance();
        try {
            transformation.config().parse(config);
            transformation.configure(config);
        } catch (ConfigException error) {
            return JSON.createObjectNode().put("config_error", error.getMessage());
        }
        ConnectRecord record = record(one.get("record"));
        if (one.has("predicate")) {
            Predicate predicate = (Predicate) Class.forName(one.get("predicate").asText()).getDeclaredConstructor().newInstance();
            Map<String, String> settings = properties(one.get("predicate_config"));
            try {
                predicate.config().parse(settings);
                predicate.configure(settings);
            } catch (ConfigException error) {
                return JSON.createObjectNode().put("config_error", error.getMessage());
            }
            if (!predicate.test(record)) return shown(record);
        }
        ConnectRecord found = transformation.apply(record);
        return found == null ? JSON.createObjectNode().put("dropped", true) : shown(found);
    }

    static ConnectRecord<?> record(JsonNode node) throws Exception {
        SchemaAndValue key = value(node.get("key"));
        SchemaAndValue value = value(node.get("value"));
        Integer partition = node.has("partition") ? node.get("partition").asInt() : null;
        Long timestamp = node.has("timestamp") ? node.get("timestamp").asLong() : null;
        String topic = node.get("topic").asText();
        ConnectRecord<?> record = node.has("offset")
            ? new SinkRecord(topic, partition, key.schema(), key.value(), value.schema(), value.value(),
                node.get("offset").asLong(), timestamp, TimestampType.CREATE_TIME)
            : new SourceRecord(Map.of(), Map.of(), topic, partition, key.schema(), key.value(), value.schema(),
                value.value(), timestamp);
        if (node.has("headers"))
            for (JsonNode each : node.get("headers")) record.headers().add(each.get(0).asText(), value(each.get(1)));
        return record;
    }

    static ObjectNode shown(ConnectRecord<?> record) {
        ObjectNode found = JSON.createObjectNode();
        found.put("topic", record.topic());
        found.put("key", envelope(record.keySchema(), record.key()));
        found.put("value", envelope(record.valueSchema(), record.value()));
        ArrayNode headers = found.putArray("headers");
        for (Header each : record.headers())
            headers.addArray().add(each.key()).add(envelope(each.schema(), each.value()));
        return found;
    }

    static JsonNode options(ObjectNode one) throws Exception {
        Object plugin = Class.forName(one.get("type").asText()).getDeclaredConstructor().newInstance();
        ConfigDef options = (ConfigDef) plugin.getClass().getMethod("config").invoke(plugin);
        ObjectNode found = JSON.createObjectNode();
        for (ConfigDef.ConfigKey each : options.configKeys().values()) {
            ObjectNode shown = found.putObject(each.name);
            shown.put("type", each.type.name());
            shown.put("importance", each.importance.name());
            shown.put("required", !each.hasDefault());
            shown.put("default", each.hasDefault() ? ConfigDef.convertToString(each.defaultValue, each.type) : null);
        }
        return found;
    }
}
