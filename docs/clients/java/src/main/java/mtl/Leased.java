package mtl;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

/**
 * The common part of {@link Writer} and {@link Reader}: a lease, and after each loss another one, until the work is
 * done. A thread of its own has the sockets. It and the application's threads share the members under the monitor.
 */
abstract class Leased implements AutoCloseable {
    static final int WINDOW_CONTENTS = 1000; // what may be unconfirmed, in either direction
    static final int WINDOW_OCTETS = 8 << 20;
    private static final long FIRST_PAUSE_MS = 100; // between attempts; doubled each time
    private static final long LONGEST_PAUSE_MS = 5000;

    final String resource;
    final Map<String, Object> wanted = new HashMap<>(); // the request for a lease
    boolean closing;

    private final Options options;
    private final ZContext context = new ZContext();
    private final ZMQ.Socket waker = context.createSocket(SocketType.PAIR);
    private final Thread thread;
    private IOException error;
    private boolean over;

    Leased(Options options, String kind, String resource, Map<String, ?> more) {
        this.options = options;
        this.resource = resource;
        // The repeated `request-id` ends the former lease, which would hold the group's cursor back [3, 5.3].
        String id = UUID.randomUUID().toString();
        wanted.putAll(Map.of("resources", List.of(resource), "confirm", "full", "holder", id, "request-id", id));
        wanted.putAll(more);
        waker.bind("inproc://wake");
        thread = new Thread(() -> run(kind), "mtl-" + kind);
        thread.setDaemon(true);
    }

    /** Sends and receives with one lease; ends when the work is done. */
    abstract void work(Flow flow, JsonObject lease, boolean extended) throws IOException;

    /** Repeats a member of the 202 in the next request. */
    final void copy(JsonObject lease, String member) {
        if (lease.has(member)) wanted.put(member, lease.get(member));
    }

    final void start() {
        thread.start();
    }

    /** Ends the wait of {@link Flow#next}. */
    final synchronized void wake() {
        if (!over) waker.send(new byte[0], ZMQ.DONTWAIT);
    }

    /** Waits under the monitor. Throws the error that ended the work. */
    final synchronized void await(BooleanSupplier condition) throws IOException, InterruptedException {
        while (!condition.getAsBoolean()) {
            if (error != null) throw error;
            if (over) throw new IOException("closed");
            wait();
        }
    }

    /** Waits until the broker has confirmed everything. */
    @Override
    public void close() throws IOException, InterruptedException {
        synchronized (this) {
            closing = true;
        }
        wake();
        thread.join();
        if (error != null) throw new IOException(error.getMessage(), error);
    }

    private void run(String kind) {
        try (context) {
            ZMQ.Socket wake = context.createSocket(SocketType.PAIR);
            wake.connect("inproc://wake");
            for (long pause = FIRST_PAUSE_MS; !worked(kind, wake); pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
                Thread.sleep(pause);
            }
        } catch (IOException refused) {
            error = refused;
        } catch (InterruptedException | RuntimeException failure) {
            error = new IOException(failure);
        } finally {
            synchronized (this) {
                over = true;
                notifyAll();
            }
        }
    }

    /** Whether the work with one lease ended without a loss. */
    private boolean worked(String kind, ZMQ.Socket wake) throws IOException {
        try (Session session = new Session(context, options)) {
            JsonObject lease = session.ask("Connection." + kind, wanted);
            try (Flow flow = new Flow(context, options.endpoint(), lease, wake)) {
                work(flow, lease, session.extended());
            }
            if (session.extended()) session.ask("Lease.Close", Map.of("lease", lease.get("lease")));
            return true;
        } catch (LostException lost) {
            options.onLost().accept(lost);
            return false;
        }
    }
}
