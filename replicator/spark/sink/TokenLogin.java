package reo;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * Obtains OAuth tokens for the Kafka clients of stage one, as librdkafka does for all others (its
 * rdkafka_sasl_oauthbearer_oidc.c): by a client's secret (RFC 6749, section 4.4), by an assertion
 * signed with its key (RFC 7523), or from the metadata service of an Azure machine.
 *
 * <p>Kafka's own handler knows the last two from 4.1 on (KIP-1139), or never; Spark has Kafka 3.9. The
 * options in the JAAS text have the names of reo's settings (common/settings/security.py). Kafka
 * calls {@link #handle} for the first token and, at four fifths of its life, for the next one; one
 * that cannot be had it asks for again, 10 s later.
 */
public final class TokenLogin implements AuthenticateCallbackHandler {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration TIMEOUT = Duration.ofSeconds(20);
    private static final int ASSERTION_S = 300;
    private static final int CLOCK_SKEW_S = 60;

    private Map<String, String> options;
    private HttpClient http;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        options = new HashMap<>();
        entries.get(0).getOptions().forEach((name, value) -> options.put(name, value.toString()));
        HttpClient.Builder builder =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(TIMEOUT);
        if (options.containsKey("sasl_oauth_ca_file")) {
            builder.sslContext(trust(options.get("sasl_oauth_ca_file")));
        }
        http = builder.build();
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) callback).token(fetchToken());
            } else if (callback instanceof SaslExtensionsCallback) {
                ((SaslExtensionsCallback) callback).extensions(new SaslExtensions(readExtensions()));
            } else {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    @Override
    public void close() {}

    private Map<String, String> readExtensions() {
        Map<String, String> extensions = new HashMap<>();
        for (String pair : options.getOrDefault("sasl_oauth_extensions", "").split(",")) {
            if (!pair.isEmpty()) {
                String[] nameAndValue = pair.split("=", 2);
                extensions.put(nameAndValue[0], nameAndValue[1]);
            }
        }
        return extensions;
    }

    private Token fetchToken() throws IOException {
        String url = options.get("sasl_oauth_token_url");
        try {
            HttpResponse<String> response =
                http.send(buildRequest(url), HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() != 200) {
                throw new IOException(
                    "the token endpoint " + url + " answers with HTTP " + response.statusCode() + ": "
                    + response.body());
            }
            JsonNode answer = JSON.readTree(response.body());
            // a few providers answer an assertion with an ID token alone, as librdkafka knows
            JsonNode token = answer.hasNonNull("access_token") ? answer.get("access_token") : answer.path("id_token");
            return Token.read(token.asText());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while " + url + " was asked for a token", interrupted);
        } catch (GeneralSecurityException | IllegalArgumentException failed) {
            throw new IOException("no token from " + url + ": " + failed.getMessage(), failed);
        }
    }

    private HttpRequest buildRequest(String url) throws GeneralSecurityException, IOException {
        HttpRequest.Builder request =
            HttpRequest.newBuilder(URI.create(url)).timeout(TIMEOUT).header("Accept", "application/json");
        String grant = options.get("sasl_oauth_grant");
        if (grant.equals("azure-imds")) {
            return request.header("Metadata", "true").build();
        }
        String form;
        if (grant.equals("jwt-bearer")) {
            form = "grant_type=" + encode("urn:ietf:params:oauth:grant-type:jwt-bearer")
                + "&assertion=" + signAssertion(url);
        } else {
            String secret = options.get("sasl_username") + ":" + options.get("sasl_password");
            request.header(
                "Authorization",
                "Basic " + Base64.getEncoder().encodeToString(secret.getBytes(StandardCharsets.UTF_8)));
            form = "grant_type=client_credentials";
        }
        if (options.containsKey("sasl_oauth_scope")) {
            form += "&scope=" + encode(options.get("sasl_oauth_scope"));
        }
        return request.header("Content-Type", "application/x-www-form-urlencoded")
            .POST(HttpRequest.BodyPublishers.ofString(form)).build();
    }

    private String signAssertion(String url) throws GeneralSecurityException, IOException {
        long now = Instant.now().getEpochSecond();
        String client = options.get("sasl_username");
        String text = base64(JSON.writeValueAsBytes(Map.of("alg", "RS256", "typ", "JWT"))) + "."
            + base64(JSON.writeValueAsBytes(Map.of(
                "iss", client,
                "sub", client,
                "aud", options.getOrDefault("sasl_oauth_audience", url),
                "iat", now,
                "nbf", now - CLOCK_SKEW_S,
                "exp", now + ASSERTION_S)));
        Signature signature = Signature.getInstance("SHA256withRSA");
        signature.initSign(KeyFactory.getInstance("RSA").generatePrivate(
            new PKCS8EncodedKeySpec(decodeKey(options.get("sasl_oauth_key_file")))));
        signature.update(text.getBytes(StandardCharsets.US_ASCII));
        return text + "." + base64(signature.sign());
    }

    private static byte[] decodeKey(String pem) {
        String mark = "PRIVATE KEY-----";
        int begin = pem.indexOf("-----BEGIN " + mark) + ("-----BEGIN " + mark).length();
        return Base64.getMimeDecoder().decode(pem.substring(begin, pem.indexOf("-----END " + mark)));
    }

    private static SSLContext trust(String pem) {
        try {
            KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
            trusted.load(null, null);
            for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(
                    new ByteArrayInputStream(pem.getBytes(StandardCharsets.UTF_8)))) {
                trusted.setCertificateEntry(String.valueOf(trusted.size()), certificate);
            }
            TrustManagerFactory managers =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            managers.init(trusted);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, managers.getTrustManagers(), null);
            return context;
        } catch (GeneralSecurityException | IOException failed) {
            throw new IllegalArgumentException(
                "the CA certificates of the token endpoint cannot be used: " + failed.getMessage(), failed);
        }
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private static String base64(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    /** A JWT (RFC 7519), with what Kafka's login reads of it; the broker alone verifies it. */
    private record Token(String value, String principalName, Long startTimeMs, long lifetimeMs)
        implements OAuthBearerToken {

        static Token read(String value) throws IOException {
            String[] parts = value.split("\\.");
            JsonNode claims =
                parts.length == 3 ? JSON.readTree(Base64.getUrlDecoder().decode(parts[1])) : null;
            if (claims == null || !claims.hasNonNull("sub") || !claims.path("exp").isNumber()) {
                throw new IOException("the token endpoint's answer has no JWT with the claims sub and exp");
            }
            JsonNode issuedAt = claims.path("iat");
            return new Token(
                value,
                claims.get("sub").asText(),
                issuedAt.isNumber() ? issuedAt.asLong() * 1000 : null,
                claims.get("exp").asLong() * 1000);
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }
    }
}
