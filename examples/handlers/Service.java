// A handler for `http:` in the configuration of `reprise up`: the URL is http://127.0.0.1:8080/orders. It needs Jackson; `make test`
// does not run it.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Service {
    public static void main(String[] args) throws Exception {
        var json = new ObjectMapper();
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 0);
        server.setExecutor(Executors.newFixedThreadPool(10));
        server.createContext("/orders", exchange -> {
            var status = 204;
            if (!json.readTree(exchange.getRequestBody()).has("customer")) {
                status = 400; // the message moves to orders.failed
            } else if (Integer.parseInt(exchange.getRequestHeaders().getFirst("Reprise-Attempt")) < 3) {
                status = 429;
                exchange.getResponseHeaders().set("Retry-After", "1"); // a retry after 1 s
            }
            exchange.sendResponseHeaders(status, -1);
            exchange.close();
        });
        server.start();
    }
}
