import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Records written and read with Apicurio's Avro serdes, through a topic; prints the schema id that is in them. */
public class ApicurioSerdes {
  private static final String ORDER =
      "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"sea\",\"fields\":["
          + "{\"name\":\"id\",\"type\":\"int\"},{\"name\":\"port\",\"type\":\"string\",\"default\":\"\"}]}";

  public static void main(String[] arguments) throws Exception {
    String bootstrap = arguments[0];
    String registry = arguments[1];
    String topic = arguments[2];
    Schema schema = new Schema.Parser().parse(ORDER);
    GenericRecord order = new GenericData.Record(schema);
    order.put("id", 7);
    order.put("port", "HAM");
    try (KafkaProducer<String, Object> producer = new KafkaProducer<>(settings(bootstrap, registry, true))) {
      for (int count = 0; count < 2; count++) {
        producer.send(new ProducerRecord<>(topic, "ada", order)).get();
      }
    }
    Map<String, Object> plain = new HashMap<>();
    plain.put("apicurio.registry.url", registry);
    try (KafkaConsumer<String, byte[]> consumer = new KafkaConsumer<>(settings(bootstrap, registry, false));
        AvroKafkaDeserializer<GenericRecord> deserializer = new AvroKafkaDeserializer<>()) {
      deserializer.configure(plain, false);
      consumer.subscribe(List.of(topic));
      for (int polls = 0; polls < 60; polls++) {
        for (ConsumerRecord<String, byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
          GenericRecord seen = deserializer.deserialize(topic, record.headers(), record.value());
          ByteBuffer bytes = ByteBuffer.wrap(record.value());
          if (bytes.get() != 0) {
            throw new IllegalStateException("the record does not begin with a zero byte");
          }
          System.out.println("SUCCESS " + bytes.getInt() + " " + seen);
          return;
        }
      }
    }
    throw new IllegalStateException("nothing came");
  }

  private static Properties settings(String bootstrap, String registry, boolean isProducer) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    if (isProducer) {
      settings.put("key.serializer", StringSerializer.class.getName());
      settings.put("value.serializer", AvroKafkaSerializer.class.getName());
      settings.put("apicurio.registry.url", registry);
      settings.put("apicurio.registry.auto-register", "true");
      settings.put("apicurio.registry.auto-register.if-exists", "FIND_OR_CREATE_VERSION");
      // The subject of Confluent's serializers: the topic's name with -value behind it.
      settings.put(
          "apicurio.registry.artifact-resolver-strategy",
          "io.apicurio.registry.serde.strategy.TopicIdStrategy");
    } else {
      settings.put("group.id", "apicurio-serdes");
      settings.put("auto.offset.reset", "earliest");
      settings.put("key.deserializer", StringDeserializer.class.getName());
      settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
    }
    return settings;
  }
}
