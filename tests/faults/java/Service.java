import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;

/** A price service on the JDK's HttpServer. Usage: java Service.java pauses PORT. */
public class Service {
    record Item(int id, Integer[] tags) {}

    static List<Item> heap = new ArrayList<>();

    static void collect() {
        int objects = Integer.parseInt(System.getenv().getOrDefault("OBJECTS", "4000000"));
        for (int i = 0; i < objects; i++) heap.add(new Item(i, new Integer[] {i}));
        long between = Long.parseLong(System.getenv().getOrDefault("BETWEEN_MS", "300"));
        while (true) {
            System.gc();
            try {
                Thread.sleep(between);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    public static void main(String[] args) throws Exception {
        InetSocketAddress address =
                new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(args[1]));
        HttpServer server = HttpServer.create(address, 1024);
        AtomicBoolean once = new AtomicBoolean();
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath();
            if (path.equals("/collect") && once.compareAndSet(false, true)) {
                Thread thread = new Thread(Service::collect);
                thread.setDaemon(true);
                thread.start();
            }
            int hash = 7;
            for (int i = 0; i < 200_000; i++) hash = hash * 31 + i;
            byte[] body = ("{\"price\": " + hash + "}\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }
}
