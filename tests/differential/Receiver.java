import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Takes the telemetry of clients and forgets it: without a receiver Kafka does not serve it at all. */
public class Receiver implements MetricsReporter, ClientTelemetry {
    @Override public void init(List<KafkaMetric> metrics) { }
    @Override public void metricChange(KafkaMetric metric) { }
    @Override public void metricRemoval(KafkaMetric metric) { }
    @Override public void configure(Map<String, ?> configs) { }
    @Override public void close() { }
    @Override public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> { };
    }
}
