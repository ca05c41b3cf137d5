import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Kafka's Java clients, driven by another process: one JSON object a line in, one out. A request names what to do in
 * "do"; the answer has "value", or "code" with Kafka's number and "message" when the broker refused.
 */
public final class Driver {
    /** One thing that can be asked for. */
    interface Command {
        Object run(JsonNode request) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        // Whatever a library prints must not stand between two answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Map<String, Command> commands = new HashMap<>();
        try (Producing producing = new Producing(arguments[0]);
                Consuming consuming = new Consuming(arguments[0]);
                Sharing sharing = new Sharing(arguments[0]);
                Administering administering = new Administering(arguments[0])) {
            producing.addTo(commands);
            consuming.addTo(commands);
            sharing.addTo(commands);
            administering.addTo(commands);
            BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(JSON.writeValueAsString(answer(commands, JSON.readTree(line))));
                answers.flush();
            }
        }
    }

    private static Map<String, Object> answer(Map<String, Command> commands, JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("value", commands.get(request.get("do").asText()).run(request));
        } catch (Exception failure) {
            Throwable cause = failure;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                    && cause.getCause() != null) {
                cause = cause.getCause();
            }
            // A consumer without a reset policy says it in exceptions that stand for no code.
            Errors error = cause instanceof InvalidOffsetException ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(cause);
            answer.put("code", (int) error.code());
            answer.put("message", cause.toString());
        }
        return answer;
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }
}
