import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Apache Kafka's assignors: a group as JSON in one line of the input, its assignment in one line of the output. */
public final class Assigning {
    private Assigning() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(Driver.JSON.writeValueAsString(assign(Driver.JSON.readTree(line))));
        }
    }

    private static ObjectNode assign(JsonNode asked) {
        Map<Uuid, Integer> sizes = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(each -> sizes.put(topic(each.getKey()), each.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        asked.get("members").fields().forEachRemaining(each -> {
            Set<Uuid> topics = new HashSet<>();
            each.getValue().get("topics").forEach(name -> topics.add(topic(name.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            each.getValue().get("assigned").fields().forEachRemaining(held -> {
                Set<Integer> partitions = new HashSet<>();
                held.getValue().forEach(number -> partitions.add(number.asInt()));
                assigned.put(topic(held.getKey()), partitions);
                for (int number : partitions) {
                    owners.computeIfAbsent(topic(held.getKey()), ignored -> new HashMap<>()).put(number, each.getKey());
                }
            });
            JsonNode instance = each.getValue().get("instance");
            members.put(each.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                topics,
                new Assignment(assigned)));
        });
        SubscriptionType type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        return told(assignor.assign(new GroupSpecImpl(members, type, owners), new Sizes(sizes)));
    }

    private static ObjectNode told(GroupAssignment assignment) {
        ObjectNode told = Driver.JSON.createObjectNode();
        assignment.members().forEach((memberId, member) -> {
            ObjectNode topics = told.putObject(memberId);
            member.partitions().forEach((topicId, partitions) -> {
                ArrayNode numbers = topics.putArray(Long.toString(topicId.getLeastSignificantBits()));
                new TreeSet<>(partitions).forEach(numbers::add);
            });
        });
        return told;
    }

    private static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    /** How many partitions each topic has. */
    private record Sizes(Map<Uuid, Integer> sizes) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return sizes.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Collections.emptySet();
        }
    }
}
