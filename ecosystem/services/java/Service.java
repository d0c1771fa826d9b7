import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;

/** A service on the JDK's HttpServer whose requests do what MODE says. Usage: Service PORT MODE. */
public class Service {
    static final Map<String, Double> ROUTES = Map.of("/a", 0.1, "/b", 0.5, "/c", 2.0, "/d", 10.0);
    static final Object LOCK = new Object();
    static final Semaphore SLOTS = new Semaphore(8, true);
    static volatile long sink;
    static volatile long began;
    static double steps = 10_000;

    /** Takes so many ms of a CPU, in steps counted once. */
    static void burn(double ms) {
        long x = 88172645463325252L;
        for (long i = 0, n = (long) (steps * ms); i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        sink = x;
    }

    /** Counts the steps of a ms by the fastest of 60 trials; the first ones run uncompiled. */
    static void calibrate() {
        double best = 0;
        for (int i = 0; i < 60; i++) {
            long start = System.nanoTime();
            burn(100);
            best = Math.max(best, 100 * steps / ((System.nanoTime() - start) / 1e6));
        }
        steps = best;
    }

    /** 3 between the seconds SLOW=FROM,UNTIL after the beginning, else 1. */
    static double slowness() {
        String slow = System.getenv("SLOW");
        if (slow == null) return 1;
        String[] parts = slow.split(",");
        double since = (System.nanoTime() - began) / 1e9;
        return since >= Double.parseDouble(parts[0]) && since < Double.parseDouble(parts[1]) ? 3 : 1;
    }

    static boolean chance(int among) {
        return ThreadLocalRandom.current().nextInt(among) == 0;
    }

    static void request(String mode, String path) throws InterruptedException {
        switch (mode) {
            case "cpu", "pauses" -> burn(1);
            case "exp" -> burn(-Math.log(1 - ThreadLocalRandom.current().nextDouble()));
            case "bimodal" -> burn(chance(10) ? 8 : 0.2);
            case "wait" -> {
                Thread.sleep(20);
                burn(1);
            }
            case "lock" -> {
                if (chance(2)) {
                    synchronized (LOCK) {
                        Thread.sleep(2);
                    }
                } else {
                    burn(0.1);
                }
            }
            case "slow" -> burn(slowness());
            case "routes" -> burn(ROUTES.getOrDefault(path, 0.0));
            case "pool" -> {
                SLOTS.acquire();
                Thread.sleep(8);
                SLOTS.release();
                burn(0.2);
            }
            case "rare" -> {
                if (chance(100)) Thread.sleep(1000);
                else burn(1);
            }
            default -> throw new IllegalArgumentException(mode);
        }
    }

    public static void main(String[] args) throws Exception {
        calibrate();
        byte[] answer = new byte[100];
        Arrays.fill(answer, (byte) 'x');
        InetSocketAddress address =
                new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(args[0]));
        HttpServer server = HttpServer.create(address, 2048);
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath();
            if (path.equals("/-/begin")) {
                began = System.nanoTime();
            } else {
                try {
                    request(args[1], path);
                } catch (InterruptedException e) {
                    return;
                }
            }
            exchange.sendResponseHeaders(200, answer.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(answer);
            }
        });
        // As many as Tomcat and Jetty have by default.
        server.setExecutor(Executors.newFixedThreadPool(200));
        server.start();
    }
}
