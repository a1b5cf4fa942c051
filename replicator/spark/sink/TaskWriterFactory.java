package reo;

import java.util.HashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.StructType;

/** What the driver sends to the tasks of a batch: all attempts of a task get the same. */
final class TaskWriterFactory implements StreamingDataWriterFactory {
    private static final long serialVersionUID = 1L;

    final SinkOptions options;
    final StructType schema;
    /** By source partition, up to where the batches before have written. */
    final HashMap<TopicPartition, Long> writtenThrough;

    TaskWriterFactory(SinkOptions options, StructType schema, HashMap<TopicPartition, Long> writtenThrough) {
        this.options = options;
        this.schema = schema;
        this.writtenThrough = writtenThrough;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int task, long attempt, long batch) {
        EnvelopeSink.requireSparkVersion();
        return new TaskWriter(this);
    }
}
