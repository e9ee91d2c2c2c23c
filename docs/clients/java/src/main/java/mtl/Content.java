package mtl;

/**
 * A content that a {@link Reader} received.
 *
 * @param number its position in the resource
 */
public record Content(long number, byte[] body, Flow flow) {}
