package reo;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;

/**
 * The driver's side of the sink. Spark makes a new write for each batch, and keeps the table for the
 * whole query: so the table has what passes from batch to batch, up to where each source partition
 * was written. All attempts of a task begin there. The end of the batch before, as Spark knows it,
 * would not do: a batch can end in offsets that no reader sees, and the envelopes on both sides of
 * them would not be adjacent.
 */
final class SinkTable implements Table, SupportsWrite {
    private final SinkOptions options;
    /** By source partition; guarded by this. */
    private final HashMap<TopicPartition, Long> writtenThrough = new HashMap<>();

    SinkTable(SinkOptions options) {
        this.options = options;
        options.starts().forEach((source, first) -> writtenThrough.put(source, first - 1));
    }

    @Override
    public String name() {
        return "reo's intermediate topics";
    }

    @Override
    public StructType schema() {
        return new StructType();
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new Builder(info.schema());
    }

    private synchronized void onCommitted(WriterCommitMessage[] messages) {
        for (WriterCommitMessage message : messages) {
            if (message instanceof TaskWriter.Written written && written.source() != null) {
                writtenThrough.put(written.source(), written.through());
            }
        }
    }

    private synchronized TaskWriterFactory createFactory(StructType schema) {
        return new TaskWriterFactory(options, schema, new HashMap<>(writtenThrough));
    }

    /** Real-Time Mode asks for the output mode "update", of which this plan has only new rows. */
    private final class Builder implements WriteBuilder, SupportsTruncate, SupportsStreamingUpdateAsAppend {
        private final StructType schema;

        Builder(StructType schema) {
            this.schema = schema;
        }

        @Override
        public WriteBuilder truncate() {
            return this;
        }

        @Override
        public Write build() {
            return new Write() {
                @Override
                public StreamingWrite toStreaming() {
                    return new BatchWrites(schema);
                }
            };
        }
    }

    private final class BatchWrites implements StreamingWrite {
        private final StructType schema;

        BatchWrites(StructType schema) {
            this.schema = schema;
        }

        @Override
        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
            return createFactory(schema);
        }

        /** A task that Spark runs twice writes envelopes twice, which does no harm. */
        @Override
        public boolean useCommitCoordinator() {
            return false;
        }

        @Override
        public void commit(long batch, WriterCommitMessage[] messages) {
            onCommitted(messages);
        }

        /** What was written stays: it is true, and the next run writes it again. */
        @Override
        public void abort(long batch, WriterCommitMessage[] messages) {}
    }
}
