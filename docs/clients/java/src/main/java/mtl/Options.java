package mtl;

import java.io.IOException;
import java.util.function.Consumer;

/**
 * The options of a connection.
 *
 * @param endpoint the control endpoint of the broker
 * @param user the user to log in as, or null if the broker requires no log-in
 * @param onLost called before each new attempt to connect
 */
public record Options(String endpoint, String user, String password, Consumer<IOException> onLost) {}
