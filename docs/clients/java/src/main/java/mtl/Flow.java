package mtl;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

/** The data flow of one lease [3]. One thread uses it. */
final class Flow implements AutoCloseable {
    static final int LEASE = 1, RESPONSE = 2, SUMMON = 3, CONTENT = 5, CONFIRM = 6, REJECT = 7, PING = 8, PONG = 9;
    private static final double HEARTBEAT_S = 5; // for a lease that names no other interval
    private static final byte[] EMPTY = {};

    /** A command of the broker. `last` marks a Pong after which no other is due. */
    record Command(int kind, long number, byte[] fields, byte[] body, boolean last) {
        boolean flag(int at) {
            return at < fields.length && fields[at] == 1;
        }

        String text() {
            return new String(body, UTF_8);
        }
    }

    private final ZMQ.Socket data;
    private final ZMQ.Socket monitor;
    private final ZMQ.Socket wake;
    private final ZMQ.Poller poller;
    private final long heartbeatMs;
    private long heard = System.nanoTime();
    private int pongsDue; // Pings without a Pong

    Flow(ZContext context, String endpoint, JsonObject lease, ZMQ.Socket wake) {
        this.wake = wake;
        double heartbeat = lease.has("heartbeat") ? lease.get("heartbeat").getAsDouble() : HEARTBEAT_S;
        heartbeatMs = (long) (1000 * heartbeat);
        String host = endpoint.substring(0, endpoint.lastIndexOf(':') + 1);
        String there = lease.has("endpoint") ? lease.get("endpoint").getAsString() : host + lease.get("port");
        data = Session.connected(context, SocketType.DEALER, there);
        data.setLinger(1000);
        // The socket would connect again by itself, and the lease would not be presented on that connection.
        String events = "inproc://events-" + System.identityHashCode(data);
        data.monitor(events, ZMQ.EVENT_DISCONNECTED);
        monitor = context.createSocket(SocketType.PAIR);
        monitor.connect(events);
        poller = context.createPoller(3);
        poller.register(data, ZMQ.Poller.POLLIN);
        poller.register(monitor, ZMQ.Poller.POLLIN);
        poller.register(wake, ZMQ.Poller.POLLIN);
        send(LEASE, 1, shortString(lease.get("lease").getAsString(), 0));
    }

    /** A short string [1], and zero octets after it. */
    static byte[] shortString(String text, int zeros) {
        byte[] raw = text.getBytes(UTF_8);
        if (raw.length > 255) throw new IllegalArgumentException("a name has at most 255 octets: " + text);
        return ByteBuffer.allocate(1 + raw.length + zeros).put((byte) raw.length).put(raw).array();
    }

    void send(int kind, long number, byte[] fields) {
        send(kind, number, fields, EMPTY);
    }

    void send(int kind, long number, byte[] fields, byte[] body) {
        data.sendMore(ByteBuffer.allocate(9 + fields.length).put((byte) kind).putLong(number).put(fields).array());
        data.send(body);
    }

    void ping() {
        pongsDue++;
        signal(PING);
    }

    private void signal(int kind) {
        data.sendMore(new byte[] {(byte) kind});
        data.send(EMPTY);
    }

    /** The next command; null after a wake-up and after `ms`. Pings are answered. */
    Command next(long ms) throws IOException {
        poller.poll(Math.min(ms, heartbeatMs));
        while (wake.recv(ZMQ.DONTWAIT) != null) continue;
        byte[] header = data.recv(ZMQ.DONTWAIT);
        if (header != null) return received(header, data.recv());
        if (monitor.recv(ZMQ.DONTWAIT) != null) throw new LostException("the connection has ended");
        long silentMs = (System.nanoTime() - heard) / 1_000_000;
        if (silentMs > 3 * heartbeatMs) throw new LostException("the broker is silent");
        if (silentMs > heartbeatMs && pongsDue == 0) ping();
        return null;
    }

    private Command received(byte[] header, byte[] body) throws IOException {
        heard = System.nanoTime();
        int kind = header.length == 0 ? 0 : header[0];
        if (data.hasReceiveMore() || (header.length < 9 && kind != PING && kind != PONG)) {
            throw new LostException("an ill-formed command");
        }
        if (kind == PING) {
            signal(PONG);
            return null;
        }
        if (kind == PONG) return new Command(PONG, 0, EMPTY, body, --pongsDue == 0);
        ByteBuffer fields = ByteBuffer.wrap(header, 1, header.length - 1);
        long number = fields.getLong();
        byte[] rest = new byte[fields.remaining()];
        fields.get(rest);
        Command command = new Command(kind, number, rest, body, false);
        if (kind == RESPONSE && !command.text().equals("200")) {
            throw new LostException("the broker answered " + command.text());
        }
        return command;
    }

    @Override
    public void close() {
        poller.close();
        data.monitor(null, 0); // before its reader is closed: jeromq's IO thread would wait for a reader of an event
        data.close();
        monitor.close();
    }
}
