package reo;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;

/**
 * Decides when the envelopes of one task are sent: at once when none of this partition is in flight,
 * otherwise when the open one is full, or when the last one in flight is acknowledged. So a lonely
 * record does not wait, and a backlog makes large envelopes.
 *
 * <p>Three threads meet here. The task appends, and sends what is full. The producer's I/O thread
 * acknowledges: it must not block, or nothing is sent any more, so it only counts and hands this
 * object to the sender thread ({@link SharedProducer}), which sends what was appended meanwhile. Both
 * that send hold the lock while they do; the I/O thread never takes it.
 */
final class PartitionSender implements Callback {
    /** Enough that a connection is busy while acknowledgements are on their way. */
    static final int IN_FLIGHT_MAX = 6;
    /** In a JVM only one record that has no room in an envelope is encoded at a time. */
    private static final Semaphore ALONE = new Semaphore(1);

    private final SharedProducer producer;
    private final TopicPartition intermediate;
    private final OpenEnvelope open;
    private final int bytesMax;
    private final ReentrantLock lock = new ReentrantLock();
    private final Semaphore slots = new Semaphore(IN_FLIGHT_MAX);
    private final AtomicBoolean isScheduled = new AtomicBoolean();
    /** Whether the open envelope waits for an acknowledgement. */
    private volatile boolean isWaiting;
    private volatile boolean isClosed;
    /** The task's; null when it has ended, and the thread may run another one. Guarded by this. */
    private Thread taskThread = Thread.currentThread();

    PartitionSender(SharedProducer producer, TopicPartition intermediate, OpenEnvelope open, int bytesMax) {
        this.producer = producer;
        this.intermediate = intermediate;
        this.open = open;
        this.bytesMax = bytesMax;
        producer.register(this);
    }

    /** The task: one more record. */
    void append(SourceRow row) throws IOException {
        lockInterruptibly();
        try {
            int size = open.computeSize(row);
            if (open.hasRecords() && !open.reserve(size, bytesMax)) {
                flush();
                size = open.computeSize(row);
            }
            if (open.reserve(size, bytesMax)) {
                open.append(row);
                flushIfIdle();
            } else {
                sendAlone(row, size);
            }
        } finally {
            lock.unlock();
        }
    }

    /** The task: a record that filter.sql leaves out. */
    void leaveOut(long offset) throws IOException {
        lockInterruptibly();
        try {
            open.leaveOut(offset);
            flushIfIdle();
        } finally {
            lock.unlock();
        }
    }

    /** The task: send the rest; returns when everything is acknowledged. */
    void finish() throws IOException {
        lockInterruptibly();
        try {
            flush();
        } finally {
            lock.unlock();
        }
        acquire(slots, IN_FLIGHT_MAX);
        producer.requireNotFailed();
    }

    /** The task: fails when an envelope was not written. */
    void requireNotFailed() throws IOException {
        producer.requireNotFailed();
    }

    /** The task: nothing more is sent; what is in flight may still arrive. It does not wait. */
    void close() {
        isClosed = true;
        producer.unregister(this);
        synchronized (this) {
            taskThread = null;
        }
        if (lock.tryLock()) {
            open.release();
            lock.unlock();
        }
    }

    /**
     * Any thread: wake the task, which may wait for rows of its partition until the batch ends. Spark's
     * source fails then, and the task with it.
     */
    synchronized void interruptTask() {
        if (taskThread != null && taskThread != Thread.currentThread()) {
            taskThread.interrupt();
        }
    }

    /** The sender thread. */
    void sendAppended() throws IOException {
        isScheduled.set(false);
        lock.lock();
        try {
            if (isIdle() && !isClosed) {
                flush();
            }
        } finally {
            if (isClosed) { // `close` did not get the lock
                open.release();
            }
            lock.unlock();
        }
    }

    /** The producer's I/O thread; the sending thread when the producer refuses an envelope at once. */
    @Override
    public void onCompletion(RecordMetadata metadata, Exception failure) {
        if (failure != null) {
            producer.fail(intermediate, failure);
        }
        slots.release();
        if (isIdle() && isWaiting && !isClosed && isScheduled.compareAndSet(false, true)) {
            producer.schedule(this);
        }
    }

    private boolean isIdle() {
        return slots.availablePermits() == IN_FLIGHT_MAX;
    }

    /**
     * First it says that something waits, then it looks; `onCompletion` first counts, then looks. So
     * one of the two sees the other.
     */
    private void flushIfIdle() throws IOException {
        if (!isWaiting) {
            isWaiting = true;
        }
        if (isIdle()) {
            flush();
        }
    }

    private void flush() throws IOException {
        if (open.hasStretch()) {
            acquire(slots, 1);
            send(open.finish());
        }
        isWaiting = false;
    }

    private void sendAlone(SourceRow row, int size) throws IOException {
        acquire(slots, 1);
        acquire(ALONE, 1);
        try {
            send(open.finishAlone(row, size));
        } finally {
            ALONE.release();
        }
        isWaiting = false;
    }

    /** With a slot. After a failure nothing is sent: this partition would have a gap there. */
    private void send(byte[] envelope) throws IOException {
        boolean isHandedOver = false;
        try {
            producer.requireNotFailed();
            producer.send(
                new ProducerRecord<>(intermediate.topic(), intermediate.partition(), null, envelope), this);
            isHandedOver = true;
        } catch (InterruptException interrupted) {
            throw interrupt(interrupted);
        } catch (RuntimeException failure) {
            producer.fail(intermediate, failure);
            producer.requireNotFailed();
        } finally {
            if (!isHandedOver) { // nobody calls `onCompletion` then
                slots.release();
            }
        }
    }

    private void lockInterruptibly() throws IOException {
        try {
            lock.lockInterruptibly();
        } catch (InterruptedException interrupted) {
            throw interrupt(interrupted);
        }
    }

    private void acquire(Semaphore semaphore, int permits) throws IOException {
        try {
            semaphore.acquire(permits);
        } catch (InterruptedException interrupted) {
            throw interrupt(interrupted);
        }
    }

    /** Spark interrupts the thread of a task that it kills; a failure does, too. */
    private IOException interrupt(Exception interrupted) throws IOException {
        Thread.currentThread().interrupt();
        producer.requireNotFailed();
        IOException failure = new InterruptedIOException("the task was killed while it waited");
        failure.initCause(interrupted);
        return failure;
    }
}
