package reo.test;

import java.io.IOException;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Takes the tokens of Amazon MSK with IAM, as far as their documentation says what they are: the
 * base64url text of a URL for the action kafka-cluster:Connect, signed in advance (Signature Version
 * 4, in the query) for one region, with an access key that is known here. Each token that is taken
 * is a line in a file: what signed it, region and time.
 */
public final class MskValidator implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
    private static final int LIFETIME_MAX_S = 900;
    /** As Kafka's own validator allows; so a client on a busy machine has time to renew a token. */
    private static final int CLOCK_SKEW_S = 30;

    private Map<String, ?> options;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        options = entries.get(0).getOptions();
    }

    @Override
    public void close() {}

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback) {
                OAuthBearerValidatorCallback asked = (OAuthBearerValidatorCallback) callback;
                try {
                    asked.token(validate(asked.tokenValue()));
                } catch (GeneralSecurityException | RuntimeException refused) {
                    note("refused " + refused);
                    asked.error("invalid_token", null, null);
                }
            } else if (!(callback instanceof OAuthBearerExtensionsValidatorCallback)) {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private Token validate(String value) throws GeneralSecurityException, IOException {
        URI url = URI.create(new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8));
        String region = options.get("region").toString();
        Map<String, String> asked = new HashMap<>();
        TreeMap<String, String> signed = new TreeMap<>();
        for (String pair : url.getRawQuery().split("&")) {
            String[] nameAndValue = pair.split("=", 2);
            asked.put(nameAndValue[0], URLDecoder.decode(nameAndValue[1], StandardCharsets.UTF_8));
            if (!Set.of("X-Amz-Signature", "User-Agent").contains(nameAndValue[0])) {
                signed.put(nameAndValue[0], nameAndValue[1]);
            }
        }
        String time = asked.get("X-Amz-Date");
        String scope = time.substring(0, 8) + "/" + region + "/kafka-cluster/aws4_request";
        demand("https", url.getScheme());
        demand("kafka." + region + ".amazonaws.com", url.getHost());
        if (!Set.of("", "/").contains(url.getPath())) {
            throw new IllegalArgumentException(url.getPath() + " is not the root");
        }
        demand("kafka-cluster:Connect", asked.get("Action"));
        demand("AWS4-HMAC-SHA256", asked.get("X-Amz-Algorithm"));
        demand("host", asked.get("X-Amz-SignedHeaders"));
        demand(options.get("accessKey") + "/" + scope, asked.get("X-Amz-Credential"));
        demand(options.get("sessionToken"), asked.get("X-Amz-Security-Token"));
        String canonical = "GET\n/\n"
            + signed.entrySet().stream().map(one -> one.getKey() + "=" + one.getValue()).collect(Collectors.joining("&"))
            + "\nhost:" + url.getHost() + "\n\nhost\n" + hash("");
        String text = "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + hash(canonical);
        byte[] key = ("AWS4" + options.get("secretKey")).getBytes(StandardCharsets.UTF_8);
        for (String part : scope.split("/")) {
            key = sign(key, part);
        }
        demand(HexFormat.of().formatHex(sign(key, text)), asked.get("X-Amz-Signature"));
        Instant begin = TIME.parse(time, Instant::from);
        int lifetime = Integer.parseInt(asked.get("X-Amz-Expires"));
        Instant end = begin.plusSeconds(lifetime);
        Instant now = Instant.now();
        if (lifetime > LIFETIME_MAX_S || now.isAfter(end.plusSeconds(CLOCK_SKEW_S)) || begin.isAfter(now.plusSeconds(CLOCK_SKEW_S))) {
            throw new IllegalArgumentException("a token of " + begin + " for " + lifetime + " s");
        }
        note(asked.get("User-Agent").split("/")[0] + " " + region + " " + time);
        return new Token(value, options.get("accessKey").toString(), begin.toEpochMilli(), end.toEpochMilli());
    }

    private synchronized void note(String line) throws IOException {
        Files.writeString(
            Path.of(options.get("log").toString()), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static void demand(Object expected, String actual) {
        if (!expected.equals(actual)) {
            throw new IllegalArgumentException(actual + " is not " + expected);
        }
    }

    private static String hash(String text) throws GeneralSecurityException {
        return HexFormat.of().formatHex(
            MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static byte[] sign(byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private record Token(String value, String principalName, Long startTimeMs, long lifetimeMs)
        implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }
    }
}
