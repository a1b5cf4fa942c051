package reo.test;

import java.io.IOException;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler;

/** Kafka's own validator of OAuth tokens, which also demands the extensions of Confluent Cloud. */
public final class DemandingValidator extends OAuthBearerValidatorCallbackHandler {
    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerExtensionsValidatorCallback) {
                OAuthBearerExtensionsValidatorCallback asked = (OAuthBearerExtensionsValidatorCallback) callback;
                demand(asked, "logicalCluster", "lkc-1");
                demand(asked, "identityPoolId", "pool-2=a");
            } else {
                super.handle(new Callback[] {callback});
            }
        }
    }

    private static void demand(OAuthBearerExtensionsValidatorCallback asked, String name, String value) {
        if (value.equals(asked.inputExtensions().map().get(name))) {
            asked.valid(name);
        } else {
            asked.error(name, "is not " + value);
        }
    }
}
