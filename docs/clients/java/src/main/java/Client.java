// A client of the `log` profile in Java, written from PROTOCOL.md alone: a starting point.
//
//   java Client ENDPOINT publish RESOURCE NAME COUNT    contents 0 .. COUNT-1, each confirmed, as the writer NAME
//   java Client ENDPOINT read RESOURCE GROUP COUNT      COUNT contents, a line for each, as the holder of GROUP
//
// Both survive a restart of the broker: silence ends the connection, and a new lease goes on where the former one ended.

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.UUID;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

public final class Client {
    static final int LEASE = 1, RESPONSE = 2, SUMMON = 3, CONTENT = 5, CONFIRM = 6, REJECT = 7, PING = 8, PONG = 9;
    static final int PING_MS = 1000; // a Ping after so much silence, and five times as much is a broker that is gone
    static final int HANDSHAKE_MS = 2000; // jeromq 0.6.0 forgets some connections before the handshake (its #1022)
    static final int WINDOW = 1000; // contents that are sent and not confirmed
    static final byte[] NOTHING = {};
    static final Set<String> TRANSIENT = Set.of("not-open", "overloaded", "storage");

    static final class Lost extends Exception {
        Lost(String why) { super(why); }
    }

    record Command(int kind, long number, byte[] rest, byte[] body) {}

    // --- data commands (RFC 11; PROTOCOL.md 1) ------------------------------------------------------------------

    static byte[] header(int kind, long number, byte[] rest) {
        return ByteBuffer.allocate(9 + rest.length).put((byte) kind).putLong(number).put(rest).array();
    }

    static byte[] named(String name, int more) {
        byte[] raw = name.getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(1 + raw.length + more).put((byte) raw.length).put(raw).array();
    }

    // --- control flow (PROTOCOL.md 2) ---------------------------------------------------------------------------

    static final class Session {
        final ZMQ.Socket request;
        String token;

        Session(ZContext context, String endpoint) throws Exception {
            request = context.createSocket(SocketType.REQ);
            request.setReceiveTimeOut(5000);
            request.setHandshakeIvl(HANDSHAKE_MS);
            request.connect(endpoint);
            JsonObject protocol = new JsonObject(), open = new JsonObject(), profile = new JsonObject();
            protocol.addProperty("name", "MTL");
            protocol.addProperty("version", 1);
            open.add("protocol", protocol);
            token = ask("Connection.Open", open).get("session").getAsString();
            profile.addProperty("profile", "log");
            ask("Connection.Profile", profile);
        }

        JsonObject ask(String command, JsonObject body) throws Exception {
            if (token != null) body.addProperty("session", token);
            request.sendMore(command);
            request.send(body.toString());
            String code = request.recvStr();
            if (code == null) throw new Lost("no reply to " + command);
            JsonObject reply = JsonParser.parseString(request.recvStr()).getAsJsonObject();
            if (code.startsWith("2")) return reply;
            if (TRANSIENT.contains(reply.get("reason").getAsString())) throw new Lost(command + ": " + reply);
            throw new IOException(command + ": " + code + " " + reply);
        }
    }

    // --- data flow (PROTOCOL.md 3) ------------------------------------------------------------------------------

    static final class Flow {
        final ZMQ.Socket dealer;
        long heard = System.nanoTime();
        int pings = 0; // without a Pong yet
        String pong = ""; // the body of the last one

        Flow(ZContext context, String endpoint) {
            dealer = context.createSocket(SocketType.DEALER);
            dealer.setReceiveTimeOut(PING_MS);
            dealer.setHandshakeIvl(HANDSHAKE_MS);
            dealer.setSndHWM(0); // a send waits for no broker that is gone; WINDOW bounds what is on its way
            dealer.connect(endpoint);
        }

        void send(byte[] header, byte[] body) {
            dealer.sendMore(header);
            dealer.send(body);
        }

        void confirm(long number) {
            send(header(CONFIRM, number, new byte[] {1}), NOTHING);
        }

        void ping() {
            send(new byte[] {PING}, NOTHING);
            pings++;
        }

        // The next command but Pings; null after a while without one.
        Command next() throws Lost {
            byte[] head = dealer.recv();
            if (head == null) {
                if (System.nanoTime() - heard > 5_000_000L * PING_MS) throw new Lost("nothing heard");
                ping();
                return null;
            }
            byte[] body = dealer.recv();
            heard = System.nanoTime();
            if (head[0] == PING) {
                send(new byte[] {PONG}, NOTHING);
                return null;
            }
            if (head[0] == PONG) {
                pings--;
                pong = new String(body, StandardCharsets.US_ASCII);
            }
            if (head.length < 9) return new Command(head[0], 0, NOTHING, body);
            byte[] rest = java.util.Arrays.copyOfRange(head, 9, head.length);
            return new Command(head[0], ByteBuffer.wrap(head, 1, 8).getLong(), rest, body);
        }

        // The next command of this kind.
        Command await(int kind) throws Lost {
            for (;;) {
                Command command = next();
                if (command != null && command.kind == kind) return command;
            }
        }

        // Send a Lease or a Summon, and wait for its Response.
        void ask(int kind, String name) throws Lost {
            send(header(kind, kind, named(name, 0)), NOTHING);
            String code = new String(await(RESPONSE).body, StandardCharsets.US_ASCII);
            if (!code.startsWith("20")) throw new Lost("a Response " + code);
        }
    }

    // --- what it is for -----------------------------------------------------------------------------------------

    abstract static class Work {
        final JsonObject wanted = new JsonObject(); // what the lease is asked for with
        final String resource;
        final long count;

        Work(String resource, long count) {
            JsonArray resources = new JsonArray();
            resources.add(resource);
            wanted.add("resources", resources);
            wanted.addProperty("confirm", "full");
            String holder = UUID.randomUUID().toString();
            wanted.addProperty("holder", holder);
            wanted.addProperty("request-id", holder); // ends the lease before, which would hold the cursor back
            this.resource = resource;
            this.count = count;
        }

        abstract void run(Flow flow, JsonObject lease) throws Exception;

        // Until it is done; again with a new lease after a loss.
        void lasting(String endpoint, String kind) throws Exception {
            for (boolean done = false; !done; ) {
                try (ZContext context = new ZContext()) {
                    context.setLinger(1000);
                    Session session = new Session(context, endpoint);
                    JsonObject lease = session.ask("Connection." + kind, wanted);
                    String host = endpoint.substring(0, endpoint.lastIndexOf(':') + 1);
                    Flow flow = new Flow(context, host + lease.get("port").getAsInt());
                    flow.ask(LEASE, lease.get("lease").getAsString());
                    run(flow, lease);
                    JsonObject closing = new JsonObject();
                    closing.add("lease", lease.get("lease"));
                    session.ask("Lease.Close", closing);
                    done = true;
                } catch (Lost lost) {
                    System.err.println("again: " + lost.getMessage());
                    Thread.sleep(200);
                }
            }
        }
    }

    static final class Publish extends Work {
        long confirmed = 0; // a named writer's numbers count its contents, over all its leases (PROTOCOL.md 5.4)

        Publish(String resource, String name, long count) {
            super(resource, count);
            wanted.addProperty("writer", name);
        }

        @Override
        void run(Flow flow, JsonObject lease) throws Exception {
            wanted.add("epoch", lease.get("epoch"));
            JsonObject last = lease.getAsJsonObject("last");
            if (last.has(resource)) confirmed = Math.max(confirmed, last.get(resource).getAsLong());
            long next = confirmed + 1;
            while (confirmed < count) {
                for (; next <= count && next - confirmed <= WINDOW; next++) {
                    flow.send(header(CONTENT, next, named(resource, 4)), Long.toString(next - 1).getBytes());
                }
                Command command = flow.next();
                if (command == null) continue;
                if (command.kind == CONFIRM) confirmed = Math.max(confirmed, command.number);
                if (command.kind == REJECT && command.rest[1] == 0) throw new IOException("rejected: " + command.number);
                if (command.kind == REJECT) next = confirmed + 1; // recycle: everything again
            }
        }
    }

    static final class Read extends Work {
        long left;

        Read(String resource, String group, long count) {
            super(resource, count);
            left = count;
            wanted.addProperty("group", group);
            wanted.addProperty("from", "group"); // the group's cursor; then the sequence after the last content
            wanted.add("window", JsonParser.parseString("{\"contents\": " + WINDOW + ", \"bytes\": 8388608}"));
        }

        @Override
        void run(Flow flow, JsonObject lease) throws Exception {
            long position = lease.get("from").getAsLong();
            flow.ask(SUMMON, resource);
            while (left > 0) {
                Command command = flow.next();
                if (command == null || command.kind != CONTENT || command.number < position) continue;
                System.out.println(new String(command.body, StandardCharsets.UTF_8));
                position = command.number + 1;
                wanted.addProperty("from", position);
                left--;
                if (command.number % (WINDOW / 4) == 0) flow.confirm(command.number);
            }
            // All of it, also what an earlier flow has lost. The Pong says where the group is then (PROTOCOL.md 5.3).
            flow.confirm(position - 1);
            flow.ping();
            while (flow.pings > 0) flow.next();
            if (!flow.pong.equals(Long.toString(position))) throw new Lost("the group is at " + flow.pong);
        }
    }

    public static void main(String[] arguments) throws Exception {
        long count = Long.parseLong(arguments[4]);
        if (arguments[1].equals("publish")) {
            new Publish(arguments[2], arguments[3], count).lasting(arguments[0], "Writer");
        } else {
            new Read(arguments[2], arguments[3], count).lasting(arguments[0], "Reader");
        }
    }
}
