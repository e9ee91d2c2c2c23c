package mtl;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.text.Normalizer;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;
import javax.crypto.spec.SecretKeySpec;

/** The client's half of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding. */
final class Scram {
    /** Some seconds of work; more would only be an attack by the server. */
    private static final int MAX_ITERATIONS = 10_000_000;

    private final String password;
    private final String nonce;
    private final String bare;
    private String expected; // server-final-message

    Scram(String user, String password) {
        byte[] random = new byte[18];
        new SecureRandom().nextBytes(random);
        this.password = Normalizer.normalize(password, Normalizer.Form.NFKC);
        nonce = encoded(random);
        String name = Normalizer.normalize(user, Normalizer.Form.NFKC);
        bare = "n=" + name.replace("=", "=3D").replace(",", "=2C") + ",r=" + nonce;
    }

    /** client-first-message. */
    String first() {
        return "n,," + bare;
    }

    /** client-final-message, the answer to server-first-message. */
    String last(String serverFirst) throws RefusedException {
        try {
            return proof(serverFirst);
        } catch (GeneralSecurityException | IllegalArgumentException error) {
            throw new RefusedException("the broker's first SCRAM message is invalid: " + serverFirst);
        }
    }

    /** Checks server-final-message. A client must not continue before. */
    void check(String serverFinal) throws RefusedException {
        if (!serverFinal.equals(expected)) {
            throw new RefusedException("the broker has not proved that it knows the password");
        }
    }

    private String proof(String serverFirst) throws GeneralSecurityException {
        Map<String, String> fields = new HashMap<>();
        for (String field : serverFirst.split(",")) {
            fields.put(field.substring(0, 1), field.substring(2));
        }
        String both = fields.getOrDefault("r", "");
        byte[] salt = Base64.getDecoder().decode(fields.getOrDefault("s", ""));
        int iterations = Integer.parseInt(fields.getOrDefault("i", "0"));
        if (!both.startsWith(nonce) || iterations > MAX_ITERATIONS) {
            throw new IllegalArgumentException(serverFirst);
        }
        PBEKeySpec derivation = new PBEKeySpec(password.toCharArray(), salt, iterations, 256);
        byte[] salted = SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(derivation).getEncoded();
        String withoutProof = "c=biws,r=" + both;
        String message = bare + "," + serverFirst + "," + withoutProof;
        byte[] clientKey = sign(salted, "Client Key");
        byte[] proof = sign(MessageDigest.getInstance("SHA-256").digest(clientKey), message);
        for (int i = 0; i < proof.length; i++) {
            proof[i] ^= clientKey[i];
        }
        expected = "v=" + encoded(sign(sign(salted, "Server Key"), message));
        return withoutProof + ",p=" + encoded(proof);
    }

    private static byte[] sign(byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(UTF_8));
    }

    private static String encoded(byte[] octets) {
        return Base64.getEncoder().encodeToString(octets);
    }
}
