// A client of the `log` profile in Java, written from PROTOCOL.md alone (its sections are in brackets).
//
//   java Client ENDPOINT publish RESOURCE WRITER COUNT    publish the contents 0 .. COUNT-1, all confirmed
//   java Client ENDPOINT read RESOURCE GROUP COUNT        print COUNT contents, a line each
// Both survive a restart of the broker: after a loss they get a new lease and continue.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

public final class Client {
    static final int LEASE = 1, RESPONSE = 2, SUMMON = 3, CONTENT = 5, CONFIRM = 6, PING = 8, PONG = 9;
    static final int WINDOW = 1000; // contents that are sent and not confirmed

    record Command(byte[] header, String body) {
        long number() { return ByteBuffer.wrap(header).getLong(1); }
    }

    static final Map<String, Object> wanted = new HashMap<>(); // the request for a lease
    static String resource;
    static long count;
    static ZMQ.Socket request, data; // of the control flow [2] and of the data flow [3]

    static ZMQ.Socket connect(ZContext context, SocketType type, String endpoint, int silenceMs) {
        ZMQ.Socket socket = context.createSocket(type);
        socket.setReceiveTimeOut(silenceMs);
        socket.setHandshakeIvl(2000); // jeromq 0.6.0 may stop before the handshake (its #1022)
        socket.setSndHWM(0); // WINDOW limits the messages that wait
        socket.connect(endpoint);
        return socket;
    }

    static JsonObject ask(String command, Map<String, Object> body) throws Exception {
        request.sendMore(command);
        request.send(new Gson().toJson(body));
        String code = request.recvStr();
        if (code == null) throw new IOException("no reply to " + command);
        JsonObject reply = new Gson().fromJson(request.recvStr(), JsonObject.class);
        if (code.startsWith("2")) return reply;
        String reason = reply.get("reason").getAsString();
        if (List.of("not-open", "overloaded", "storage").contains(reason)) throw new IOException(reason);
        throw new IllegalStateException(command + ": " + code + " " + reply);
    }

    static void send(int kind, long number, byte[] rest, String body) {
        ByteBuffer header = ByteBuffer.allocate(9 + rest.length).put((byte) kind).putLong(number).put(rest);
        data.sendMore(header.array());
        data.send(body);
    }

    static byte[] named(String name, int zeros) { // a short string, then zeros
        byte[] raw = name.getBytes();
        return ByteBuffer.allocate(1 + raw.length + zeros).put((byte) raw.length).put(raw).array();
    }

    // The next command except Pings, which it answers, and Responses of success.
    static Command next() throws IOException {
        for (;;) {
            byte[] header = data.recv();
            if (header == null) throw new IOException("the broker is silent");
            Command command = new Command(header, data.recvStr());
            int kind = header[0];
            if (kind == RESPONSE && !command.body.equals("200")) throw new IOException("refused: " + command.body);
            if (kind != RESPONSE && kind != PING) return command;
            if (kind == RESPONSE) continue;
            data.sendMore(new byte[] {PONG});
            data.send("");
        }
    }

    static void publish(JsonObject lease) throws Exception {
        wanted.put("epoch", lease.get("epoch"));
        JsonObject last = lease.getAsJsonObject("last"); // numbers count over all leases of a writer [5.4]
        long confirmed = last.has(resource) ? last.get(resource).getAsLong() : 0;
        for (long next = confirmed + 1; confirmed < count; ) {
            for (; next <= count && next - confirmed <= WINDOW; next++) {
                send(CONTENT, next, named(resource, 4), Long.toString(next - 1)); // an empty field table [1]
            }
            Command command = next();
            if (command.header[0] == CONFIRM) {
                confirmed = Math.max(confirmed, command.number());
            } else { // a Reject
                if (command.header[10] == 0) throw new IllegalStateException("rejected: " + command.number());
                next = confirmed + 1; // "recycle": send again all that is not confirmed
            }
        }
    }

    static void read(JsonObject lease) throws Exception {
        long position = lease.get("from").getAsLong();
        send(SUMMON, 2, named(resource, 0), "");
        for (; count > 0; count--) {
            Command content = next();
            System.out.println(content.body);
            position = content.number() + 1;
            wanted.put("from", position);
            if (position % (WINDOW / 4) == 0) send(CONFIRM, position - 1, new byte[] {1}, "");
        }
        send(CONFIRM, position - 1, new byte[] {1}, "");
        data.sendMore(new byte[] {PING}); // the Pong has the position of the group [5.3]
        data.send("");
        Command pong = next();
        while (pong.header[0] != PONG) pong = next();
        if (!pong.body.equals(Long.toString(position))) throw new IOException("the group is at " + pong.body);
    }

    // Get a lease and do the work with it. An IOException is a loss, after which a new lease may succeed.
    static void run(String endpoint, boolean reading) throws Exception {
        try (ZContext context = new ZContext()) {
            request = connect(context, SocketType.REQ, endpoint, 5000);
            Map<String, Object> protocol = Map.of("name", "MTL", "version", 1);
            ask("Connection.Open", Map.of("protocol", protocol));
            ask("Connection.Profile", Map.of("profile", "log"));
            JsonObject lease = ask(reading ? "Connection.Reader" : "Connection.Writer", wanted);
            String host = endpoint.substring(0, endpoint.lastIndexOf(':') + 1);
            data = connect(context, SocketType.DEALER, host + lease.get("port"), 15_000); // three heartbeats
            send(LEASE, 1, named(lease.get("lease").getAsString(), 0), "");
            if (reading) read(lease);
            else publish(lease);
            ask("Lease.Close", Map.of("lease", lease.get("lease")));
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean reading = arguments[1].equals("read");
        resource = arguments[2];
        count = Long.parseLong(arguments[4]);
        wanted.put(reading ? "group" : "writer", arguments[3]);
        if (reading) wanted.put("from", "group");
        String id = UUID.randomUUID().toString(); // used again, it ends the former lease of the group
        wanted.putAll(Map.of("resources", List.of(resource), "confirm", "full", "holder", id, "request-id", id));
        for (;;) {
            try {
                run(arguments[0], reading);
                return;
            } catch (IOException lost) {
                System.err.println("again: " + lost.getMessage());
                Thread.sleep(200);
            }
        }
    }
}
