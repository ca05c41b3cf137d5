import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Workers of one broker, asked line by line in JSON: open a queue, run rounds of tasks, close it. */
public final class QueueClient {
    private static final int WINDOW = 5_000;
    private static final long ROUND_S_MAX = 180;

    private final String kind;
    private final String address;
    private TaskQueue queue;
    private Round held;

    private QueueClient(String kind, String address) {
        this.kind = kind;
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        QueueClient client = new QueueClient(arguments[0], arguments[1]);
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Object answer;
            try {
                answer = client.answer(mapper.readTree(line));
            } catch (Exception failure) {
                failure.printStackTrace();
                answer = Map.of("failure", failure.toString());
            }
            System.out.println(mapper.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private Map<String, ?> answer(JsonNode request) throws Exception {
        return switch (request.get("do").asText()) {
            case "open" -> open(request);
            case "run" -> run(request);
            case "hold" -> hold(request);
            case "release" -> release();
            default -> close();
        };
    }

    private Map<String, ?> open(JsonNode request) throws Exception {
        String name = request.get("queue").asText();
        queue = kind.equals("amqp") ? new RabbitQueue(address, name, request) : new ShareQueue(address, name, request);
        return Map.of();
    }

    private Map<String, ?> run(JsonNode request) throws Exception {
        int count = request.get("count").asInt();
        Round round = new Round(count, request.get("poison").asInt(), request.get("lock_ms").asLong(), 0);
        queue.work(round);
        publish(round, request);
        round.await(ROUND_S_MAX);
        double[] underWay = round.underWay(request.get("skip").asInt());
        double[] heldUp = round.poison == Round.NO_POISON ? new double[] {0} : round.heldUp();
        long twice = java.util.Arrays.stream(heldUp).filter(locks -> locks > 1.5).count();
        return Map.of(
            "seconds", round.seconds(),
            "p50_ms", percentile(underWay, 0.50),
            "p99_ms", percentile(underWay, 0.99),
            "again", round.againCount(),
            "held_up_locks", heldUp[heldUp.length - 1],
            "held_up_twice", twice
        );
    }

    private static double percentile(double[] sorted, double part) {
        return sorted[Math.max((int) Math.ceil(part * sorted.length), 1) - 1];
    }

    /** Publishes the tasks of a round: `rate` a second, or as fast as the broker confirms them. */
    private void publish(Round round, JsonNode request) throws Exception {
        Semaphore window = new Semaphore(WINDOW);
        int bytes = request.get("bytes").asInt();
        int rate = request.get("rate").asInt();
        long start = System.nanoTime();
        for (int index = 0; index < round.count; index++) {
            long due = rate == 0 ? System.nanoTime() : start + index * 1_000_000_000L / rate;
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            if (!window.tryAcquire(ROUND_S_MAX, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the broker confirms nothing");
            }
            queue.publish(round.task(index, bytes, due), window);
        }
        window.acquire(WINDOW);
    }

    /** Publishes tasks, and lets each worker hold one large poll of them; returns how many they hold. */
    private Map<String, ?> hold(JsonNode request) throws Exception {
        held = new Round(request.get("count").asInt(), Round.NO_POISON, 0, request.get("held_min").asInt());
        publish(held, request);
        queue.work(held);
        for (int before = -1; held.heldCount() > before; Thread.sleep(2_000)) {
            before = held.heldCount();
        }
        return Map.of("held", held.heldCount());
    }

    private Map<String, ?> release() throws Exception {
        held.released.countDown();
        held.await(ROUND_S_MAX);
        return Map.of();
    }

    private Map<String, ?> close() throws Exception {
        queue.close();
        return Map.of();
    }
}
