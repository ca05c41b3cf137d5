import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/** The tasks of one round, and when each of them was due, acquired and acknowledged. */
final class Round {
    static final int NO_POISON = -1;

    final int count;
    final int poison;
    final long lockMs;
    /** A worker holds the first poll with as many tasks; 0 if none does. */
    final int heldMin;
    /** Ends a round whose workers hold what they acquire. */
    final CountDownLatch released = new CountDownLatch(1);
    private final int acknowledgedMax;
    private final AtomicLongArray acquiredAt;
    private final AtomicLongArray acknowledgedAt;
    private final AtomicLong first = new AtomicLong(Long.MAX_VALUE);
    private final AtomicInteger acquired = new AtomicInteger();
    private final AtomicInteger acknowledged = new AtomicInteger();
    private final AtomicInteger held = new AtomicInteger();
    private final AtomicInteger again = new AtomicInteger();
    private final long[] dueAt;
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile long last;
    private volatile Exception failure;

    Round(int count, int poison, long lockMs, int heldMin) {
        this.count = count;
        this.poison = poison;
        this.lockMs = lockMs;
        this.heldMin = heldMin;
        acknowledgedMax = poison == NO_POISON ? count : count - 1;
        acquiredAt = new AtomicLongArray(count);
        acknowledgedAt = new AtomicLongArray(count);
        dueAt = new long[count];
    }

    /** A round without tasks, which lasts until it is ended. */
    static Round waiting() {
        return new Round(0, NO_POISON, 0, 0);
    }

    byte[] task(int index, int bytes, long due) {
        dueAt[index] = due;
        byte[] value = new byte[bytes];
        Arrays.fill(value, (byte) 'x');
        ByteBuffer.wrap(value).putInt(index);
        return value;
    }

    static int indexOf(byte[] value) {
        return ByteBuffer.wrap(value).getInt();
    }

    void acquired(int index, long now) {
        if (acquiredAt.compareAndSet(index, 0, now)) {
            first.accumulateAndGet(now, Math::min);
            acquired.incrementAndGet();
        } else {
            again.incrementAndGet();
        }
    }

    /** Counts an acknowledgement, and returns whether it was the last one. The round goes on until `end`. */
    boolean acknowledged(int index, long now) {
        return acknowledgedAt.compareAndSet(index, 0, now) && acknowledged.incrementAndGet() == acknowledgedMax;
    }

    void end() {
        last = System.nanoTime();
        ended.countDown();
    }

    void fail(Exception reason) {
        failure = reason;
        end();
    }

    boolean isRunning() {
        return ended.getCount() > 0;
    }

    void held(int tasks) throws InterruptedException {
        held.addAndGet(tasks);
        released.await();
    }

    int heldCount() {
        return held.get();
    }

    int againCount() {
        return again.get();
    }

    void await(long seconds) throws Exception {
        boolean isEnded = ended.await(seconds, TimeUnit.SECONDS);
        if (failure != null) {
            throw failure;
        }
        if (!isEnded) {
            throw new IllegalStateException(acquired + " of " + count + " tasks acquired, " + acknowledged + " acknowledged");
        }
    }

    double seconds() {
        return (last - first.get()) / 1e9;
    }

    /** Returns how long each task from `skip` on was under way, in milliseconds, sorted. */
    double[] underWay(int skip) {
        double[] times = new double[count - skip];
        for (int index = skip; index < count; index++) {
            times[index - skip] = (acquiredAt.get(index) - dueAt[index]) / 1e6;
        }
        Arrays.sort(times);
        return times;
    }

    /** Returns how long each task but the poison one was held up after it was first acquired, in locks, sorted. */
    double[] heldUp() {
        double[] times = new double[count];
        for (int index = 0; index < count; index++) {
            if (index != poison) {
                times[index] = (acknowledgedAt.get(index) - acquiredAt.get(index)) / 1e6 / lockMs;
            }
        }
        Arrays.sort(times);
        return times;
    }
}
