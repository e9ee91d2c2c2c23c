package mtl;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/** Publishes under a name, so that each content is stored once, also over restarts of this process [5.4]. */
public final class Writer extends Leased {
    private static final long IDLE_MS = 60_000;

    private final NavigableMap<Long, byte[]> unconfirmed = new TreeMap<>(); // by number
    private long octets; // of the unconfirmed bodies
    private long numbered = -1; // the number of the newest content; -1 before the first lease
    private long confirmed;
    private long last;

    private Writer(Options options, String resource, String name) {
        super(options, "Writer", resource, Map.of("writer", name));
    }

    /** Waits for the first lease. */
    public static Writer open(Options options, String resource, String name) throws IOException, InterruptedException {
        Writer writer = new Writer(options, resource, name);
        writer.start();
        writer.await(() -> writer.numbered >= 0);
        return writer;
    }

    /** The number of contents that an earlier writer of this name has published: continue after them. */
    public synchronized long last() {
        return last;
    }

    /** Waits until the window has room. */
    public void send(byte[] body) throws IOException, InterruptedException {
        synchronized (this) {
            await(() -> unconfirmed.isEmpty() || hasRoom(body.length));
            unconfirmed.put(++numbered, body);
            octets += body.length;
        }
        wake();
    }

    private boolean hasRoom(int more) {
        return octets + more <= WINDOW_OCTETS && unconfirmed.size() < WINDOW_CONTENTS;
    }

    @Override
    void work(Flow flow, JsonObject lease, boolean extended) throws IOException {
        begin(lease, extended);
        byte[] fields = Flow.shortString(resource, 4); // with an empty field table [1]
        long sent = 0;
        for (;;) {
            Map.Entry<Long, byte[]> content;
            while ((content = after(sent)) != null) {
                sent = content.getKey();
                flow.send(Flow.CONTENT, sent, fields, content.getValue());
            }
            if (isDone()) return;
            Flow.Command command = flow.next(IDLE_MS);
            if (command == null) continue;
            if (command.kind() == Flow.CONFIRM) {
                copy(lease, "log-epochs"); // where the confirmed contents are [5.1.1]
                settle(command.number(), command.flag(0));
            } else if (command.kind() == Flow.REJECT && !command.flag(1)) {
                throw new RefusedException("content " + command.number() + " was rejected");
            } else if (command.kind() == Flow.REJECT) { // "recycle": this content and all after it
                throw new LostException("content " + command.number() + " is to be sent again");
            }
        }
    }

    private synchronized void begin(JsonObject lease, boolean extended) throws IOException {
        JsonElement number = extended ? lease.getAsJsonObject("last").get(resource) : null;
        long stored = number == null ? 0 : number.getAsLong();
        if (numbered < 0) {
            last = numbered = stored;
            notifyAll();
        } else if (extended && stored < confirmed) {
            String text = "the broker has lost contents: it has %d of %d confirmed ones";
            throw new RefusedException(String.format(text, stored, confirmed));
        }
        copy(lease, "epoch");
        settle(stored, true);
    }

    private synchronized Map.Entry<Long, byte[]> after(long sent) {
        return unconfirmed.higherEntry(sent);
    }

    private synchronized boolean isDone() {
        return closing && unconfirmed.isEmpty();
    }

    /** Removes a content, or with `multiple` all contents up to it. */
    private synchronized void settle(long number, boolean multiple) {
        if (multiple) confirmed = Math.max(confirmed, number);
        NavigableMap<Long, byte[]> settled = unconfirmed.subMap(multiple ? 0 : number, true, number, true);
        octets -= settled.values().stream().mapToLong(body -> body.length).sum();
        settled.clear();
        notifyAll();
    }
}
