package mtl;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Map;
import java.util.Queue;

/**
 * Reads as the holder of a group [5.3]. A content that was not confirmed is delivered again, to the next reader.
 */
public final class Reader extends Leased {
    // A Confirm is sent after so many contents or octets, or this time after the first of them.
    private static final int CONFIRM_CONTENTS = WINDOW_CONTENTS / 4;
    private static final int CONFIRM_OCTETS = WINDOW_OCTETS / 4;
    private static final long CONFIRM_MS = 1000;
    private static final byte[] ONE = {0};
    private static final byte[] ALL = {1};

    private final Queue<Content> received = new ArrayDeque<>(); // not delivered yet; the window limits them
    private final Queue<Content> single = new ArrayDeque<>(); // to confirm, for a server of RFC 11 alone
    private long delivered; // the number of the newest delivered content
    private long processed; // the position after the newest confirmed content; 0 if there is none
    private int contents; // confirmed by the application and not yet to the broker
    private int octets;
    private long oldest; // when the first of them was confirmed, in ns
    private boolean extended;

    private Reader(Options options, String resource, String group) {
        super(options, "Reader", resource, Map.of("group", group, "from", "group", "window",
                Map.of("contents", WINDOW_CONTENTS, "bytes", WINDOW_OCTETS)));
    }

    /** Begins to read. */
    public static Reader open(Options options, String resource, String group) {
        Reader reader = new Reader(options, resource, group);
        reader.start();
        return reader;
    }

    /** Waits for a content. */
    public synchronized Content next() throws IOException, InterruptedException {
        await(() -> !received.isEmpty());
        Content content = received.remove();
        delivered = content.number();
        return content;
    }

    /** Confirms a content and all contents before it. */
    public void confirm(Content content) {
        synchronized (this) {
            if (!extended) { // the numbers of a server of RFC 11 alone are no positions [2]
                single.add(content);
            } else {
                processed = content.number() + 1;
                octets += content.body().length;
                if (contents++ == 0) oldest = System.nanoTime();
                else if (!isDue()) return;
            }
        }
        wake();
    }

    private boolean isDue() {
        return contents >= CONFIRM_CONTENTS || octets >= CONFIRM_OCTETS;
    }

    @Override
    void work(Flow flow, JsonObject lease, boolean isExtended) throws IOException {
        begin(isExtended);
        try {
            flow.send(Flow.SUMMON, 2, Flow.shortString(resource, 0));
            boolean ending = false;
            confirm(flow); // the former flow may have lost it
            for (;;) {
                long wait = confirmDue(flow);
                if (!ending && isClosing()) {
                    ending = true;
                    confirm(flow);
                    flow.ping(); // its Pong has the position of the group [5.3]
                }
                Flow.Command command = flow.next(wait);
                if (command == null) continue;
                if (command.kind() == Flow.CONTENT) add(new Content(command.number(), command.body(), flow));
                if (ending && command.last()) {
                    if (isAt(command.text())) return;
                    throw new LostException("the group is at " + command.text());
                }
            }
        } finally {
            resumeAfter(lease);
        }
    }

    private synchronized void begin(boolean isExtended) {
        extended = isExtended;
        received.clear();
        single.clear();
    }

    private synchronized boolean isClosing() {
        return closing;
    }

    private synchronized void add(Content content) {
        if (extended && content.number() <= delivered) return;
        received.add(content);
        notifyAll();
    }

    private synchronized boolean isAt(String position) {
        return !extended || processed == 0 || position.equals(Long.toString(processed));
    }

    /** Sends the Confirms that are due, and returns the milliseconds until the next one may be. */
    private synchronized long confirmDue(Flow flow) {
        for (Content content; (content = single.poll()) != null; ) {
            if (content.flow() == flow) flow.send(Flow.CONFIRM, content.number(), ONE);
        }
        if (contents == 0) return CONFIRM_MS;
        long waited = (System.nanoTime() - oldest) / 1_000_000;
        if (!isDue() && waited < CONFIRM_MS) return CONFIRM_MS - waited;
        confirm(flow);
        return CONFIRM_MS;
    }

    private synchronized void confirm(Flow flow) {
        contents = octets = 0;
        if (processed > 0) flow.send(Flow.CONFIRM, processed - 1, ALL);
    }

    /** The position of the next lease, and the epoch of the content before it [5.1.1]. */
    private synchronized void resumeAfter(JsonObject lease) {
        if (!extended) return;
        copy(lease, "epoch"); // a holder learns by it of a newer one, and does not take the group back [3.1]
        copy(lease, "incarnation");
        long position = processed > 0 ? processed : lease.get("from").getAsLong();
        wanted.put("from", position);
        wanted.remove("log-epoch");
        for (JsonElement epoch : lease.getAsJsonArray("history")) {
            JsonArray entry = epoch.getAsJsonArray();
            if (entry.get(0).getAsLong() < position) wanted.put("log-epoch", entry.get(1).getAsString());
        }
    }
}
