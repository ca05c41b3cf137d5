import com.fasterxml.jackson.databind.JsonNode;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Semaphore;

/** A quorum queue of RabbitMQ; each worker has a connection, as a share consumer has. */
final class RabbitQueue implements TaskQueue {
    private final String name;
    private final List<Connection> connections = new ArrayList<>();
    private final Channel publisher;
    private final TreeSet<Long> unconfirmed = new TreeSet<>();
    private volatile Semaphore window;
    private volatile Round round = Round.waiting();

    RabbitQueue(String address, String name, JsonNode request) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(address.split(":")[0]);
        factory.setPort(Integer.parseInt(address.split(":")[1]));
        this.name = name;
        publisher = channel(factory);
        publisher.queueDeclare(name, true, false, false, Map.of("x-queue-type", "quorum"));
        publisher.confirmSelect();
        publisher.addConfirmListener(this::confirm, (tag, multiple) -> round.fail(new IOException("not confirmed")));
        for (int worker = 0; worker < request.get("workers").asInt(); worker++) {
            Channel channel = channel(factory);
            channel.basicQos(request.get("prefetch").asInt());
            channel.basicConsume(name, false, new Worker(channel));
        }
    }

    private Channel channel(ConnectionFactory factory) throws Exception {
        Connection connection = factory.newConnection();
        connections.add(connection);
        return connection.createChannel();
    }

    private synchronized void confirm(long tag, boolean multiple) {
        Set<Long> confirmed = multiple ? unconfirmed.headSet(tag + 1) : unconfirmed.subSet(tag, tag + 1);
        int count = confirmed.size();
        confirmed.clear();
        window.release(count);
    }

    @Override
    public void publish(byte[] value, Semaphore window) throws Exception {
        this.window = window;
        synchronized (this) {
            unconfirmed.add(publisher.getNextPublishSeqNo());
        }
        publisher.basicPublish("", name, MessageProperties.MINIMAL_PERSISTENT_BASIC, value);
    }

    @Override
    public void work(Round next) {
        round = next;
    }

    @Override
    public void close() throws Exception {
        publisher.queueDelete(name);
        for (Connection connection : connections) {
            connection.close();
        }
    }

    private final class Worker extends DefaultConsumer {
        Worker(Channel channel) {
            super(channel);
        }

        @Override
        public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                throws IOException {
            Round now = round;
            int index = Round.indexOf(body);
            now.acquired(index, System.nanoTime());
            getChannel().basicAck(envelope.getDeliveryTag(), false);
            if (now.acknowledged(index, System.nanoTime())) {
                // An acknowledgement has no answer. This request has one, after the broker has read what came before it.
                getChannel().queueDeclarePassive(name);
                now.end();
            }
        }
    }
}
