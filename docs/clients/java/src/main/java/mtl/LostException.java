package mtl;

import java.io.IOException;

/** The connection is lost; a new one may succeed. */
final class LostException extends IOException {
    private static final long serialVersionUID = 1;

    LostException(String message) {
        super(message);
    }
}
