package reo;

import java.io.IOException;
import java.util.Objects;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * One attempt of a Spark task. Spark reads each source partition in one task and in the order of
 * offsets; an envelope would lie if it did not, so this class fails then.
 */
final class TaskWriter implements DataWriter<InternalRow> {
    /**
     * @param source null when the task had no rows
     * @param through the last source offset that this task has written or left out
     */
    record Written(TopicPartition source, long through) implements WriterCommitMessage {}

    private final TaskWriterFactory factory;
    private final UnsafeProjection projection;
    private final SourceRow row;
    /** Of the first row's partition; null before it. */
    private PartitionSender sender;
    private TopicPartition source;
    private long lastOffset;

    TaskWriter(TaskWriterFactory factory) {
        this.factory = factory;
        projection = UnsafeProjection.create(factory.schema);
        row = new SourceRow(factory.schema);
    }

    @Override
    public void write(InternalRow given) throws IOException {
        row.point(given instanceof UnsafeRow unsafe ? unsafe : projection.apply(given));
        if (sender == null) {
            begin();
        }
        if (!row.isOf(source) || row.offset() <= lastOffset) {
            throw new IllegalStateException("the task that writes " + source + " was given " + row.describe()
                + " after offset " + lastOffset + ": one task has to read one partition in order");
        }
        lastOffset = row.offset();
        if (row.isLeftOut()) {
            sender.leaveOut(lastOffset);
        } else {
            row.requireUnchanged();
            sender.append(row);
        }
    }

    private void begin() {
        source = row.source();
        SinkOptions.Route route = Objects.requireNonNull(
            factory.options.routes().get(source.topic()), () -> "there is no route from " + source);
        lastOffset = Objects.requireNonNull(
            factory.writtenThrough.get(source), () -> "the run does not read " + source);
        sender = new PartitionSender(
            SharedProducer.get(factory.options),
            new TopicPartition(route.intermediateTopic(), source.partition() - route.first()),
            new OpenEnvelope(route.identity(), factory.options.epoch(), source.partition(), lastOffset),
            route.envelopeBytesMax());
    }

    /** Returns when all is acknowledged, at the latest after delivery.timeout.ms. */
    @Override
    public WriterCommitMessage commit() throws IOException {
        if (sender != null) {
            sender.finish();
        }
        return new Written(source, lastOffset);
    }

    /** Spark adds what this throws to the error that ended the task, which may be an interruption. */
    @Override
    public void abort() throws IOException {
        close();
        if (sender != null) {
            sender.requireNotFailed();
        }
    }

    @Override
    public void close() {
        if (sender != null) {
            sender.close();
        }
    }
}
