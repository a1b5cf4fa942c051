package reo;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The envelope that is being filled, in the layout of common/envelope.py. Records are encoded when
 * they come, so no object stays for any of them. The owner's lock guards it.
 *
 * <p>Its array grows with what is in it, and is used again for the next envelope. All arrays of a JVM
 * together have a limit, beyond which none grows: with many partitions envelopes are smaller.
 */
final class OpenEnvelope {
    static final int HEAD_BYTES = 54;
    /** A small part of the smallest heap (replicator/spark/memory.py). */
    static final long ALL_BYTES_MAX = 16L << 20;
    private static final AtomicLong ALL_BYTES = new AtomicLong();
    private static final int SMALLEST_BYTES = 2048;
    private static final byte VERSION = 2;
    private static final byte LEFT_OUT = 1;

    private final byte[] identity;
    private final long epoch;
    private final int partition;

    private byte[] bytes = new byte[SMALLEST_BYTES];
    private int end = HEAD_BYTES;
    private int recordCount;
    private int lastPosition;
    private long baseTimestampMs;
    private long after;
    private long through;
    private boolean hasLeftOut;

    OpenEnvelope(byte[] identity, long epoch, int partition, long after) {
        this.identity = identity;
        this.epoch = epoch;
        this.partition = partition;
        this.after = after;
        through = after;
        ALL_BYTES.addAndGet(bytes.length);
    }

    /** Whether it would say anything. */
    boolean hasStretch() {
        return through > after;
    }

    boolean hasRecords() {
        return recordCount > 0;
    }

    void leaveOut(long offset) {
        through = offset;
        hasLeftOut = true;
    }

    /** Bytes that this record would take as the next one, without its length. */
    long computeBodySize(SourceRow row) {
        long timestampMs = row.timestampMs();
        int headerCount = row.headerCount();
        long size = 1L
            + sizeOfVarint(recordCount == 0 ? 0 : timestampMs - baseTimestampMs)
            + sizeOfVarint(row.offset() - after)
            + sizeOfBytes(row.keyBytes())
            + sizeOfBytes(row.valueBytes())
            + sizeOfVarint(headerCount);
        for (int number = 0; number < headerCount; number++) {
            UnsafeRow header = row.header(number);
            size += sizeOfBytes(SourceRow.sizeOrNull(header, 0)) + sizeOfBytes(SourceRow.sizeOrNull(header, 1));
        }
        return size;
    }

    /** Whether a record with this body is within the limit, and there is room for it now. */
    boolean reserve(long bodySize, int bytesMax) {
        long needed = end + sizeOfVarint(bodySize) + bodySize;
        if (needed > bytesMax) {
            return false;
        }
        if (needed <= bytes.length) {
            return true;
        }
        int capacity = (int) Math.max(needed, Math.min(2L * bytes.length, bytesMax));
        if (ALL_BYTES.addAndGet(capacity - bytes.length) > ALL_BYTES_MAX) {
            ALL_BYTES.addAndGet(bytes.length - capacity);
            return false;
        }
        bytes = Arrays.copyOf(bytes, capacity);
        return true;
    }

    /** There must be room: `reserve`. */
    void append(SourceRow row, long bodySize) {
        long timestampMs = row.timestampMs();
        if (recordCount++ == 0) {
            baseTimestampMs = timestampMs;
        }
        lastPosition = end;
        byte[] to = bytes;
        int at = putVarint(to, end, bodySize);
        to[at++] = (byte) (row.timestampKind() + 1);
        at = putVarint(to, at, timestampMs - baseTimestampMs);
        at = putVarint(to, at, row.offset() - after);
        int keyBytes = row.keyBytes();
        at = putVarint(to, at, keyBytes);
        at = keyBytes > 0 ? row.copyKey(to, at) : at;
        int valueBytes = row.valueBytes();
        at = putVarint(to, at, valueBytes);
        at = valueBytes > 0 ? row.copyValue(to, at) : at;
        int headerCount = row.headerCount();
        at = putVarint(to, at, headerCount);
        for (int number = 0; number < headerCount; number++) {
            UnsafeRow header = row.header(number);
            for (int column = 0; column < 2; column++) {
                int size = SourceRow.sizeOrNull(header, column);
                at = putVarint(to, at, size);
                at = size > 0 ? SourceRow.copy(header, column, to, at) : at;
            }
        }
        end = at;
        through = row.offset();
    }

    /** The envelope's bytes; the next one begins where it ends. */
    byte[] finish() {
        byte[] envelope = Arrays.copyOf(bytes, end);
        int used = end;
        putHead(envelope);
        if (used < bytes.length / 4 && bytes.length > SMALLEST_BYTES) {
            resize(Math.max(SMALLEST_BYTES, bytes.length / 2)); // others may need the room
        }
        return envelope;
    }

    /** An envelope with this record alone, for which there was no room; none may be in this one. */
    byte[] finishAlone(SourceRow row) {
        long bodySize = computeBodySize(row);
        byte[] kept = bytes;
        bytes = new byte[Math.toIntExact(HEAD_BYTES + sizeOfVarint(bodySize) + bodySize)];
        try {
            append(row, bodySize);
            putHead(bytes);
            return bytes;
        } finally {
            bytes = kept;
        }
    }

    /** Give its room back. */
    void release() {
        resize(0);
    }

    private void resize(int capacity) {
        ALL_BYTES.addAndGet(capacity - bytes.length);
        bytes = new byte[capacity];
    }

    private void putHead(byte[] envelope) {
        ByteBuffer.wrap(envelope)
            .put(VERSION)
            .put(hasLeftOut ? LEFT_OUT : 0)
            .put(identity)
            .putLong(epoch)
            .putInt(partition)
            .putLong(after)
            .putLong(through)
            .putLong(baseTimestampMs)
            .putInt(recordCount)
            .putInt(lastPosition);
        after = through;
        end = HEAD_BYTES;
        recordCount = lastPosition = 0;
        baseTimestampMs = 0;
        hasLeftOut = false;
    }

    private static long sizeOfBytes(int length) {
        return sizeOfVarint(length) + Math.max(length, 0L);
    }

    private static long zigzag(long number) {
        return number << 1 ^ number >> 63;
    }

    private static int sizeOfVarint(long number) {
        return (Long.SIZE - Long.numberOfLeadingZeros(zigzag(number) | 1) + 6) / 7;
    }

    private static int putVarint(byte[] to, int at, long number) {
        long rest = zigzag(number);
        while ((rest & ~0x7fL) != 0) {
            to[at++] = (byte) (rest | 0x80);
            rest >>>= 7;
        }
        to[at++] = (byte) rest;
        return at;
    }
}
