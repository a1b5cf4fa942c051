package reo;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The streaming sink of stage one, {@code .writeStream.format("reo.EnvelopeSink")}: it writes the
 * rows of Spark's Kafka source as envelopes (common/envelope.py) to the intermediate topics.
 *
 * <p>Spark makes one by its name, and asks it for the table of a query. The driver has
 * {@link SinkTable}, which hands a {@link TaskWriterFactory} to the tasks of each batch. A task has a
 * {@link TaskWriter}, which reads rows ({@link SourceRow}) of one partition; its
 * {@link PartitionSender} fills envelopes ({@link OpenEnvelope}) and decides when they are sent. All
 * tasks of a JVM share one {@link SharedProducer}.
 */
public final class EnvelopeSink implements TableProvider {
    /** In the jar beside this class; replicator/spark/sink_jar.py writes it. */
    private static final String BUILT_FOR = "spark-version";

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new StructType();
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        requireSparkVersion();
        return new SinkTable(SinkOptions.parse(properties));
    }

    /**
     * The sink reads Spark's internal rows, whose layout no version promises to the next one: so it
     * runs on the version that it was compiled for, and on no other. Executors of a cluster have a
     * Spark of their own, and check it too.
     */
    static void requireSparkVersion() {
        String version = org.apache.spark.package$.MODULE$.SPARK_VERSION();
        String builtFor = readBuiltFor();
        if (!version.equals(builtFor)) {
            throw new IllegalStateException(
                "reo's sink was compiled for Spark " + builtFor + ", and this is Spark " + version);
        }
    }

    private static String readBuiltFor() {
        try (InputStream text = EnvelopeSink.class.getResourceAsStream(BUILT_FOR)) {
            return text == null ? "(unknown)" : new String(text.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException unreadable) {
            throw new IllegalStateException(unreadable);
        }
    }
}
