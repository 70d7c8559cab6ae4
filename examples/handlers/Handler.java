// A handler for `process:` in the configuration of `reprise up`; `reprise up --help` describes the lines. It handles one message
// at a time: several `processes:` handle messages in parallel. It needs Jackson; `make test` does not run it.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

public class Handler {
    static class Park extends Exception { // the message moves to the failed queue without a retry
        Park(String error) {
            super(error);
        }
    }

    static class Retry extends Exception { // the message is retried after a delay in seconds
        final int after;

        Retry(String error, int after) {
            super(error);
            this.after = after;
        }
    }

    static final ObjectMapper JSON = new ObjectMapper();

    static void handle(JsonNode message) throws Exception {
        var body = message.has("body") ? message.get("body").asText().getBytes(StandardCharsets.UTF_8)
            : message.get("body_base64").binaryValue();
        var order = JSON.readTree(body);
        if (!order.has("customer")) {
            throw new Park("order without a customer");
        }
        if (order.get("customer").asText().equals("closed")) {
            throw new Retry("the bank is closed", 600);
        }
        System.out.println("charged " + order.get("customer").asText()); // in the log of `reprise up`
    }

    public static void main(String[] args) throws Exception {
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // println must not disturb the answers
        answers.println("{\"ready\":true}");
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            var message = JSON.readTree(line);
            var answer = JSON.createObjectNode().put("id", message.get("id").asLong());
            try {
                handle(message);
                answer.put("result", "done");
            } catch (Park e) {
                answer.put("result", "park").put("error", e.getMessage());
            } catch (Retry e) {
                answer.put("result", "retry").put("error", e.getMessage()).put("retry_after", e.after);
            } catch (Exception e) {
                answer.put("result", "retry").put("error", e.toString());
            }
            answers.println(answer);
        }
    }
}
