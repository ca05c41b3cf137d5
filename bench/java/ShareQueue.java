import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A share group on a topic of its own, on any broker that speaks Kafka's protocol. */
final class ShareQueue implements TaskQueue {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long JOIN_MS_MAX = 120_000;

    private final String name;
    private final Properties common = new Properties();
    private final Admin admin;
    private final KafkaProducer<byte[], byte[]> producer;
    private final List<Worker> workers = new ArrayList<>();
    private Round round = Round.waiting();
    private boolean isClosed;

    ShareQueue(String bootstrap, String name, JsonNode request) throws Exception {
        int lockMs = request.get("lock_ms").asInt();
        this.name = name;
        common.put("bootstrap.servers", bootstrap);
        admin = Admin.create(common);
        admin.createTopics(List.of(new NewTopic(name, request.get("partitions").asInt(), (short) 1))).all().get();
        set("share.auto.offset.reset", "earliest");
        if (lockMs > 0) {
            set("share.record.lock.duration.ms", Integer.toString(lockMs));
        }
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("acks", "all");
        settings.put("linger.ms", request.get("linger_ms").asInt());
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        for (int worker = 0; worker < request.get("workers").asInt(); worker++) {
            workers.add(new Worker(request.get("prefetch").asInt(), request.get("wait_ms").asInt()));
        }
        workers.forEach(Thread::start);
        waitUntilJoined();
    }

    private void set(String setting, String value) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(setting, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(change))).all().get();
    }

    /** Lets the workers poll until each of them has a partition. */
    private void waitUntilJoined() throws Exception {
        long deadline = System.currentTimeMillis() + JOIN_MS_MAX;
        while (true) {
            Collection<ShareMemberDescription> members = List.of();
            try {
                members = admin.describeShareGroups(Set.of(name)).all().get().get(name).members();
            } catch (ExecutionException notYet) {
                // The group is there after its first member has joined.
            }
            long ready = members.stream().filter(each -> !each.assignment().topicPartitions().isEmpty()).count();
            if (ready == workers.size()) {
                break;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(ready + " of " + workers.size() + " workers have a partition");
            }
            Thread.sleep(50);
        }
        round.end();
    }

    @Override
    public void publish(byte[] value, Semaphore window) {
        producer.send(new ProducerRecord<>(name, value), (place, error) -> {
            window.release();
            if (error != null) {
                current().fail(error);
            }
        });
    }

    @Override
    public synchronized void work(Round next) {
        round = next;
        notifyAll();
    }

    private synchronized Round current() {
        return round;
    }

    /** Waits while there is nothing to do. A worker that does not poll costs the broker a heartbeat now and then. */
    private synchronized Round awaitRound() throws InterruptedException {
        while (!isClosed && !round.isRunning()) {
            wait();
        }
        return round;
    }

    @Override
    public void close() throws Exception {
        synchronized (this) {
            isClosed = true;
            notifyAll();
        }
        for (Worker worker : workers) {
            worker.join();
        }
        producer.close();
        admin.deleteTopics(List.of(name)).all().get();
        admin.close();
    }

    private synchronized boolean isClosed() {
        return isClosed;
    }

    private final class Worker extends Thread {
        private final KafkaShareConsumer<byte[], byte[]> consumer;
        /** What this worker holds: the index of each task by partition and offset. */
        private final Map<Integer, Map<Long, Integer>> held = new HashMap<>();

        Worker(int prefetch, int waitMs) {
            Properties settings = new Properties();
            settings.putAll(common);
            settings.put("group.id", name);
            settings.put("share.acknowledgement.mode", "explicit");
            settings.put("share.acquire.mode", "record_limit");
            settings.put("max.poll.records", prefetch);
            settings.put("max.poll.interval.ms", 600_000);
            // Acknowledgements travel with the next fetch and are answered with it, at the end of a round after this wait.
            settings.put("fetch.max.wait.ms", waitMs);
            consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.setAcknowledgementCommitCallback(this::confirm);
            consumer.subscribe(List.of(name));
        }

        @Override
        public void run() {
            try {
                while (!isClosed()) {
                    Round now = awaitRound();
                    while (now.isRunning()) {
                        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                        // The next round may have begun while this worker waited.
                        now = current();
                        workOn(records, now);
                    }
                }
            } catch (Exception failure) {
                current().fail(failure);
            } finally {
                consumer.close();
            }
        }

        private void workOn(ConsumerRecords<byte[], byte[]> records, Round now) throws InterruptedException {
            if (records.isEmpty()) {
                return;
            }
            long acquired = System.nanoTime();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                int index = Round.indexOf(record.value());
                now.acquired(index, acquired);
                held.computeIfAbsent(record.partition(), key -> new HashMap<>()).put(record.offset(), index);
            }
            // A fetch that waited before the tasks came brings only the first few of them.
            if (now.heldMin > 0 && records.count() >= now.heldMin) {
                now.held(records.count());
            }
            for (ConsumerRecord<byte[], byte[]> record : records) {
                if (Round.indexOf(record.value()) == now.poison) {
                    hang(now);
                }
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            }
        }

        /** Stores what is done so far, and works until the lock of the rest is lost. */
        private void hang(Round now) throws InterruptedException {
            consumer.commitSync();
            Thread.sleep(now.lockMs + now.lockMs / 10);
        }

        private void confirm(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
            long now = System.nanoTime();
            Round working = current();
            if (error != null && working.poison == Round.NO_POISON) {
                working.fail(error);
            }
            offsets.forEach((place, each) -> {
                Map<Long, Integer> indexes = held.get(place.partition());
                for (long offset : each) {
                    Integer index = indexes.remove(offset);
                    if (error == null && index != null && working.acknowledged(index, now)) {
                        working.end();
                    }
                }
            });
        }
    }
}
