package mtl;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

/** The control flow [2]: requests, and the log-in that any of them may need [2.1]. */
final class Session implements AutoCloseable {
    private static final int REQUEST_MS = 5000; // a reply that takes longer is lost
    private static final int ATTEMPTS = 3; // log-ins for one request
    private static final String SCRAM = "SCRAM-SHA-256";

    private record Reply(int code, JsonObject body) {
        String text(String member) {
            JsonElement value = body.get(member);
            return value == null || value.isJsonNull() ? "" : value.getAsString();
        }

        IOException refused(String command) {
            String message = command + ": " + code + " " + text("reason") + ": " + text("message");
            // unknown-lease: the broker has ended the lease, for example after a new password.
            boolean passing = code == 503 || List.of("not-open", "unknown-lease").contains(text("reason"));
            return passing ? new LostException(message) : new RefusedException(message);
        }
    }

    private final Options options;
    private final ZMQ.Socket request;
    private String token; // null if the server implements RFC 11 alone [2]

    Session(ZContext context, Options options) throws IOException {
        this.options = options;
        request = connected(context, SocketType.REQ, options.endpoint());
        request.setReceiveTimeOut(REQUEST_MS);
        request.setLinger(0);
        try {
            open();
        } catch (IOException | RuntimeException error) {
            close();
            throw error;
        }
    }

    static ZMQ.Socket connected(ZContext context, SocketType type, String endpoint) {
        ZMQ.Socket socket = context.createSocket(type);
        socket.setHandshakeIvl(2000); // jeromq 0.6.0 may stop before the handshake (its #1022)
        socket.setHWM(0); // the window limits the messages that wait
        socket.connect(endpoint);
        return socket;
    }

    /** Whether the server implements PROTOCOL.md, and not RFC 11 alone [2]. */
    boolean extended() {
        return token != null;
    }

    /** The body of a reply. A 401 is answered by a log-in, and the request is repeated. */
    JsonObject ask(String command, Map<String, ?> body) throws IOException {
        for (int attempt = 1; ; attempt++) {
            Reply reply = exchange(command, body);
            if (reply.code < 300) return reply.body;
            if (reply.code != 401 || attempt > ATTEMPTS) throw reply.refused(command);
            logIn(reply);
        }
    }

    @Override
    public void close() {
        request.close();
    }

    private void open() throws IOException {
        Reply reply = exchange("Connection.Open", Map.of("protocol", Map.of("name", "MTL", "version", 1)));
        if (reply.code == 401) logIn(reply);
        else if (reply.code == 201) take(reply);
        else throw reply.refused("Connection.Open");
        ask("Connection.Profile", Map.of("profile", "log"));
    }

    private void take(Reply ready) {
        token = ready.body.has("session") ? ready.text("session") : null; // it makes the former token unknown
    }

    private void logIn(Reply unauthorized) throws IOException {
        List<String> offered = new ArrayList<>();
        for (JsonElement name : unauthorized.body.getAsJsonArray("mechanisms")) {
            offered.add(name.getAsString().toUpperCase(java.util.Locale.ROOT));
        }
        if (options.user() == null && offered.contains("ANONYMOUS")) {
            authorize("ANONYMOUS", "", 201);
            return;
        }
        if (options.user() == null || !offered.contains(SCRAM)) {
            String has = options.user() == null ? "has no user" : "has a user and knows " + SCRAM;
            throw new RefusedException("the broker offers the log-ins " + offered + "; this client " + has);
        }
        Scram scram = new Scram(options.user(), options.password());
        String serverFirst = authorize(SCRAM, scram.first(), 402);
        scram.check(authorize(SCRAM, scram.last(serverFirst), 402));
        authorize(SCRAM, "", 201);
    }

    /** One step of a log-in, and the challenge of its answer. */
    private String authorize(String mechanism, String text, int expected) throws IOException {
        String response = Base64.getEncoder().encodeToString(text.getBytes(UTF_8));
        Reply reply = exchange("Connection.Authorize", Map.of("mechanism", mechanism, "response", response));
        if (reply.code == 401) throw new RefusedException("the log-in as " + options.user() + " was refused");
        if (reply.code != expected) throw reply.refused("Connection.Authorize");
        if (reply.code == 201) take(reply);
        return new String(Base64.getDecoder().decode(reply.text("challenge")), UTF_8);
    }

    private Reply exchange(String command, Map<String, ?> body) throws IOException {
        Map<String, Object> whole = new HashMap<>(body);
        if (token != null) whole.put("session", token);
        request.sendMore(command.getBytes(UTF_8));
        request.send(new Gson().toJson(whole).getBytes(UTF_8));
        byte[] code = request.recv();
        if (code == null) throw new LostException("no reply to " + command);
        String text = new String(request.recv(), UTF_8);
        try {
            return new Reply(Integer.parseInt(new String(code, UTF_8)), new Gson().fromJson(text, JsonObject.class));
        } catch (NumberFormatException | JsonParseException error) {
            throw new RefusedException("an ill-formed reply to " + command + ": " + text);
        }
    }
}
