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
 * record does not wait, and a backlog makes large envelopes. What filter.sql has left out is said with
 * the next record; when none comes for a while, by an envelope without records.
 *
 * <p>Three threads meet here. The task appends, and sends what is full. The producer's I/O thread
 * acknowledges: it must not block, or nothing is sent any more, so it only counts and hands this
 * object to the sender thread ({@link SharedProducer}), which sends what was appended meanwhile. The
 * lock guards the open envelope, and is held while one is sent, so that none overtakes another. The I/O
 * thread never takes it, and no thread holds it while it waits for an acknowledgement.
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
    /** Whether records in the open envelope wait for an acknowledgement. */
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
            long bodySize = open.computeBodySize(row);
            if (open.hasRecords() && !open.reserve(bodySize, bytesMax)) {
                flush();
                bodySize = open.computeBodySize(row);
            }
            if (open.reserve(bodySize, bytesMax)) {
                open.append(row, bodySize);
                flushIfIdle();
            } else {
                sendAlone(row);
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

    /** The sender thread, when the last envelope in flight was acknowledged. */
    void sendAppended() throws IOException {
        isScheduled.set(false);
        lock.lock();
        sendIfIdle();
    }

    /** The sender thread, once in a while. When it does not get the lock, the task is about to send. */
    void sendLeftOut() throws IOException {
        if (lock.tryLock()) {
            sendIfIdle();
        }
    }

    /** With the lock, which it gives back. */
    private void sendIfIdle() throws IOException {
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
            acquireUnlocked(slots);
            if (open.hasStretch()) {
                send(open.finish());
            } else { // the sender thread was faster
                slots.release();
            }
        }
        isWaiting = false;
    }

    /** Of the open envelope only what was left out can be there: it is said with this record. */
    private void sendAlone(SourceRow row) throws IOException {
        acquireUnlocked(slots);
        acquireUnlocked(ALONE);
        try {
            send(open.finishAlone(row));
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

    /** Gives the lock back while it waits. */
    private void acquireUnlocked(Semaphore semaphore) throws IOException {
        if (!semaphore.tryAcquire()) {
            lock.unlock();
            try {
                acquire(semaphore, 1);
            } finally {
                lock.lock();
            }
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
