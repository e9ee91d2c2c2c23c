package mtl;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;

/** The command; see USAGE. */
public final class Client {
    private static final String USAGE = """
            usage:
              java mtl.Client ENDPOINT publish RESOURCE WRITER      publish each line of the standard input as a content
              java mtl.Client ENDPOINT read RESOURCE GROUP [COUNT]  print contents, a line each; COUNT, or for ever

            A publisher that is started again with the same WRITER and the same input continues after the last stored
            line. A reader that is started again with the same GROUP continues after the last printed content.
            The environment variables MTL_USER and MTL_PASSWORD log in.""";

    private Client() {}

    private static void publish(Options options, String resource, String name) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        try (Writer writer = Writer.open(options, resource, name)) {
            long number = 0;
            for (String line; (line = lines.readLine()) != null; ) {
                if (++number > writer.last()) writer.send(line.getBytes(UTF_8));
            }
        }
    }

    private static void read(Options options, String resource, String group, long count) throws Exception {
        PrintStream out = new PrintStream(System.out, true);
        try (Reader reader = Reader.open(options, resource, group)) {
            for (long read = 0; read < count; read++) {
                Content content = reader.next();
                out.write(content.body());
                out.write('\n');
                out.flush();
                reader.confirm(content);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int words = arguments.length;
        String command = words > 1 ? arguments[1] : "";
        boolean reads = command.equals("read") && (words == 4 || words == 5);
        if (!reads && !(command.equals("publish") && words == 4)) {
            System.err.println(USAGE);
            System.exit(2);
        }
        String password = System.getenv().getOrDefault("MTL_PASSWORD", "");
        Options options = new Options(arguments[0], System.getenv("MTL_USER"), password,
                lost -> System.err.println("again: " + lost.getMessage()));
        try {
            if (reads) read(options, arguments[2], arguments[3], words == 5 ? Long.parseLong(arguments[4]) : Long.MAX_VALUE);
            else publish(options, arguments[2], arguments[3]);
        } catch (IOException | NumberFormatException error) {
            System.err.println(error.getMessage());
            System.exit(1);
        }
    }
}
