import java.util.concurrent.Semaphore;

/** A queue with its workers, on either kind of broker. */
interface TaskQueue extends AutoCloseable {
    /** Publishes a task, and releases a permit when the broker has confirmed it. */
    void publish(byte[] value, Semaphore window) throws Exception;

    /** Lets the workers work on the tasks of this round until it ends. */
    void work(Round round);
}
