package reo;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * A row of Spark's Kafka source, read where it lies. A row has a word of 8 bytes for each column;
 * that of a column with bytes has their position in the row and their length. So a key, a value or a
 * header is copied once, into the envelope. One object serves all rows of a task.
 */
final class SourceRow {
    /** The texts of both errors are known to replicator/refused_records.py. */
    private static final String REFUSED =
        "a header's name cannot be copied unchanged in the source record of";
    private static final String TOO_OLD =
        "Spark changes timestamps before 1582-10-15, as in the source record of";
    /** 1582-10-15T00:00:00Z. Spark takes what is before for a date of the Julian calendar. */
    private static final long GREGORIAN_US = -12_219_292_800_000_000L;
    private static final String KEPT = "kept";
    private static final int NONE = -1;

    private final int key;
    private final int value;
    private final int topic;
    private final int partition;
    private final int offset;
    private final int timestamp;
    private final int timestampType;
    private final int headers;
    /** Without filter.sql there is no such column. */
    private final int kept;

    private UnsafeRow row;
    private UnsafeArrayData headerArray;
    /** Of the topic that was compared last. */
    private String topicName = "";
    private byte[] topicBytes = {};

    SourceRow(StructType schema) {
        key = schema.fieldIndex("key");
        value = schema.fieldIndex("value");
        topic = schema.fieldIndex("topic");
        partition = schema.fieldIndex("partition");
        offset = schema.fieldIndex("offset");
        timestamp = schema.fieldIndex("timestamp");
        timestampType = schema.fieldIndex("timestampType");
        headers = schema.fieldIndex("headers");
        kept = schema.getFieldIndex(KEPT).isDefined() ? schema.fieldIndex(KEPT) : NONE;
    }

    /** Move to a row, which Spark may reuse for the next one. */
    void point(UnsafeRow next) {
        row = next;
        headerArray = next.isNullAt(headers) ? null : next.getArray(headers);
    }

    boolean isOf(TopicPartition source) {
        if (row.getInt(partition) != source.partition()) {
            return false;
        }
        if (!topicName.equals(source.topic())) {
            topicName = source.topic();
            topicBytes = topicName.getBytes(StandardCharsets.UTF_8);
        }
        long word = row.getLong(topic);
        return size(word) == topicBytes.length && ByteArrayMethods.arrayEquals(
            row.getBaseObject(), position(row, word), topicBytes, Platform.BYTE_ARRAY_OFFSET, topicBytes.length);
    }

    TopicPartition source() {
        return new TopicPartition(row.getUTF8String(topic).toString(), row.getInt(partition));
    }

    long offset() {
        return row.getLong(offset);
    }

    String describe() {
        return source() + " at offset " + offset();
    }

    /** Whether filter.sql has left it out. */
    boolean isLeftOut() {
        return kept != NONE && !row.getBoolean(kept);
    }

    long timestampMs() {
        return Math.floorDiv(row.getLong(timestamp), 1000L);
    }

    /** -1 none, 0 create time, 1 log-append time. */
    int timestampKind() {
        return row.getInt(timestampType);
    }

    /**
     * Fails for a record that would not arrive as it is: a name with a NUL, where librdkafka's C
     * string ends; one with U+FFFD, which Kafka's Java client returns in place of bytes that are not
     * UTF-8; a timestamp that Spark has changed.
     */
    void requireUnchanged() {
        if (row.getLong(timestamp) < GREGORIAN_US) {
            throw new IllegalArgumentException(TOO_OLD + " " + describe());
        }
        for (int header = 0; header < headerCount(); header++) {
            UnsafeRow pair = header(header);
            long name = pair.getLong(0);
            Object base = pair.getBaseObject();
            long end = position(pair, name) + size(name);
            for (long at = position(pair, name); at < end; at++) {
                int unit = Platform.getByte(base, at) & 0xff;
                if (unit == 0 || unit == 0xef && at + 2 < end && (Platform.getByte(base, at + 1) & 0xff) == 0xbf
                        && (Platform.getByte(base, at + 2) & 0xff) == 0xbd) {
                    throw new IllegalArgumentException(REFUSED + " " + describe());
                }
            }
        }
    }

    /** Length of the key in bytes, -1 when it is null. */
    int keyBytes() {
        return sizeOrNull(row, key);
    }

    int copyKey(byte[] to, int at) {
        return copy(row, key, to, at);
    }

    int valueBytes() {
        return sizeOrNull(row, value);
    }

    int copyValue(byte[] to, int at) {
        return copy(row, value, to, at);
    }

    int headerCount() {
        return headerArray == null ? 0 : headerArray.numElements();
    }

    /** Its name is column 0, its value column 1. */
    UnsafeRow header(int number) {
        return headerArray.getStruct(number, 2);
    }

    /** Length in bytes of a column, -1 when it is null. */
    static int sizeOrNull(UnsafeRow row, int column) {
        return row.isNullAt(column) ? -1 : size(row.getLong(column));
    }

    /** Copies a column that is not null; returns the position after it. */
    static int copy(UnsafeRow row, int column, byte[] to, int at) {
        long word = row.getLong(column);
        Platform.copyMemory(
            row.getBaseObject(), position(row, word), to, (long) Platform.BYTE_ARRAY_OFFSET + at, size(word));
        return at + size(word);
    }

    private static long position(UnsafeRow row, long word) {
        return row.getBaseOffset() + (word >>> 32);
    }

    private static int size(long word) {
        return (int) word;
    }
}
