import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Topics, partitions, settings and records, by the admin client. */
final class Administering implements AutoCloseable {
    private final Admin admin;

    Administering(String bootstrap) {
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("create_topic", this::createTopic);
        commands.put("create_partitions", this::createPartitions);
        commands.put("delete_topic", request -> admin.deleteTopics(List.of(topic(request))).all().get());
        commands.put("delete_topic_by_id", this::deleteTopicById);
        commands.put("topics", request -> topics());
        commands.put("partitions", this::partitions);
        commands.put("cluster", request -> cluster());
        commands.put("config", this::config);
        commands.put("alter_config", this::alterConfig);
        commands.put("delete_records", this::deleteRecords);
        commands.put("offset", this::offset);
        commands.put("log_dirs", request -> logDirs());
        commands.put("producers", this::producers);
    }

    private Object createTopic(JsonNode request) throws Exception {
        NewTopic topic;
        if (request.get("assignment").isNull()) {
            int partitions = request.get("partitions").asInt();
            int replicas = request.get("replication_factor").asInt();
            topic = new NewTopic(topic(request),
                partitions < 0 ? Optional.empty() : Optional.of(partitions),
                replicas < 0 ? Optional.empty() : Optional.of((short) replicas));
        } else {
            Map<Integer, List<Integer>> assignment = new HashMap<>();
            for (JsonNode brokers : request.get("assignment")) {
                List<Integer> ids = new ArrayList<>();
                brokers.forEach(broker -> ids.add(broker.asInt()));
                assignment.put(assignment.size(), ids);
            }
            topic = new NewTopic(topic(request), assignment);
        }
        Map<String, String> configs = new HashMap<>();
        request.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(request.get("validate_only").asBoolean());
        return admin.createTopics(List.of(topic.configs(configs)), options).all().get();
    }

    private Object createPartitions(JsonNode request) throws Exception {
        NewPartitions partitions = NewPartitions.increaseTo(request.get("count").asInt());
        return admin.createPartitions(Map.of(topic(request), partitions)).all().get();
    }

    private Object deleteTopicById(JsonNode request) throws Exception {
        TopicDescription described = describe(topic(request));
        return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).all().get();
    }

    private Object topics() throws Exception {
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        Map<String, Integer> counts = new HashMap<>();
        for (var each : admin.describeTopics(names).topicNameValues().entrySet()) {
            try {
                counts.put(each.getKey(), each.getValue().get().partitions().size());
            } catch (ExecutionException failure) {
                // Deleted in between: then it is not one of the topics.
                if (!(failure.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw failure;
                }
            }
        }
        return counts;
    }

    private Object partitions(JsonNode request) throws Exception {
        Map<Integer, Object> partitions = new HashMap<>();
        for (TopicPartitionInfo each : describe(topic(request)).partitions()) {
            partitions.put(each.partition(), List.of(each.leader().id(), ids(each.replicas()), ids(each.isr())));
        }
        return partitions;
    }

    private TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private Object cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<Integer> brokers = ids(new ArrayList<>(cluster.nodes().get()));
        return List.of(cluster.clusterId().get(), cluster.controller().get().id(), brokers);
    }

    private Object config(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        Map<String, Object> settings = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            Object[] setting = {entry.value(), entry.source().name(), entry.isReadOnly(), entry.isSensitive()};
            settings.put(entry.name(), setting);
        }
        return settings;
    }

    private Object alterConfig(JsonNode request) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (JsonNode change : request.get("changes")) {
            String value = change.get(2).isNull() ? null : change.get(2).asText();
            ConfigEntry entry = new ConfigEntry(change.get(1).asText(), value);
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(change.get(0).asText())));
        }
        return admin.incrementalAlterConfigs(Map.of(resource(request), changes)).all().get();
    }

    private Object deleteRecords(JsonNode request) throws Exception {
        Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
        request.get("before").properties().forEach(each -> before.put(
            new TopicPartition(topic(request), Integer.parseInt(each.getKey())),
            RecordsToDelete.beforeOffset(each.getValue().asLong())));
        Map<Integer, Long> starts = new HashMap<>();
        for (var each : admin.deleteRecords(before).lowWatermarks().entrySet()) {
            starts.put(each.getKey().partition(), each.getValue().get().lowWatermark());
        }
        return starts;
    }

    private Object offset(JsonNode request) throws Exception {
        TopicPartition place = place(request);
        String at = request.get("at").asText();
        OffsetSpec spec = switch (at) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "latest-time" -> OffsetSpec.maxTimestamp();
            case "earliest-local" -> OffsetSpec.earliestLocal();
            case "latest-tiered" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.forTimestamp(Long.parseLong(at));
        };
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    private Object logDirs() throws Exception {
        List<Object> replicas = new ArrayList<>();
        List<Integer> brokers = ids(new ArrayList<>(admin.describeCluster().nodes().get()));
        for (var directories : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription directory : directories.values()) {
                directory.replicaInfos().forEach((place, replica) ->
                    replicas.add(List.of(place.topic(), place.partition(), replica.size(), replica.offsetLag())));
            }
        }
        return replicas;
    }

    private Object producers(JsonNode request) throws Exception {
        List<Object> producers = new ArrayList<>();
        for (ProducerState each :
                admin.describeProducers(List.of(place(request))).partitionResult(place(request)).get().activeProducers()) {
            producers.add(List.of(each.producerId(), each.producerEpoch(), each.lastSequence()));
        }
        return producers;
    }

    private static ConfigResource resource(JsonNode request) {
        String kind = request.get("kind").asText().toUpperCase();
        return new ConfigResource(ConfigResource.Type.valueOf(kind), request.get("name").asText());
    }

    private static TopicPartition place(JsonNode request) {
        return new TopicPartition(topic(request), request.get("partition").asInt());
    }

    private static String topic(JsonNode request) {
        return request.get("topic").asText();
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    @Override
    public void close() {
        admin.close();
    }
}
