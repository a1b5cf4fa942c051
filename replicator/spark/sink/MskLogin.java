package reo;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;

/**
 * Has AWS's own library sign the tokens for one Amazon MSK cluster (common/kafka/msk_iam.py does it
 * for librdkafka), with the credentials of AWS's default chain.
 *
 * <p>The library takes the region from its own default chain, where source and destination would
 * have the same: so the cluster's is put there, as the system property that comes first, while it
 * signs. Its jar is on the class path only where it is used (replicator/spark/connector_jars.py).
 */
public final class MskLogin implements AuthenticateCallbackHandler {
    private static final String LIBRARY = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler";
    private static final String REGION = "aws.region";

    private AuthenticateCallbackHandler library;
    private String region;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        region = entries.get(0).getOptions().get("sasl_aws_region").toString();
        try {
            library = (AuthenticateCallbackHandler) Class.forName(LIBRARY).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException missing) {
            throw new IllegalStateException("aws-msk-iam-auth is not on the class path: " + missing, missing);
        }
        library.configure(configs, mechanism, entries);
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        synchronized (MskLogin.class) {
            String before = System.getProperty(REGION);
            System.setProperty(REGION, region);
            try {
                library.handle(callbacks);
            } finally {
                if (before == null) {
                    System.clearProperty(REGION);
                } else {
                    System.setProperty(REGION, before);
                }
            }
        }
    }

    @Override
    public void close() {
        if (library != null) {
            library.close();
        }
    }
}
