package mtl;

import java.io.IOException;

/** A final error: another attempt would have the same answer. */
public final class RefusedException extends IOException {
    private static final long serialVersionUID = 1;

    RefusedException(String message) {
        super(message);
    }
}
