package reo;

import java.io.IOException;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The producer of all tasks of a run in this JVM, and the thread that sends for them what was
 * appended while an envelope was in flight.
 *
 * <p>Each run has its own: nothing of an earlier run waits in its buffer. The first envelope that is
 * not delivered ends it, with all that waits in it, because the query fails then anyway. The reason of
 * that first failure is the one that every task reports.
 */
final class SharedProducer {
    /** How long left-out records wait for a record that is not, with which they are said. */
    private static final long LEFT_OUT_WAITS_NS = TimeUnit.MILLISECONDS.toNanos(100);

    private static SharedProducer current;

    private final SinkOptions options;
    private final KafkaProducer<byte[], byte[]> producer;
    private final LinkedBlockingQueue<PartitionSender> acknowledged = new LinkedBlockingQueue<>();
    private final Set<PartitionSender> partitions = ConcurrentHashMap.newKeySet();
    private final AtomicReference<IOException> failure = new AtomicReference<>();
    private final Thread sender = new Thread(this::sendAppended, "reo-sender");

    private SharedProducer(SinkOptions options) {
        this.options = options;
        Thread thread = Thread.currentThread();
        ClassLoader loader = thread.getContextClassLoader();
        // Kafka finds the classes of its plug-ins, such as login modules, with it
        thread.setContextClassLoader(KafkaProducer.class.getClassLoader());
        try {
            producer = new KafkaProducer<>(
                options.producerConfig(), new ByteArraySerializer(), new ByteArraySerializer());
        } finally {
            thread.setContextClassLoader(loader);
        }
        sender.setDaemon(true);
        sender.start();
    }

    /** That of this run. The one of an earlier run ends. */
    static synchronized SharedProducer get(SinkOptions options) {
        if (current != null && current.options.epoch() > options.epoch()) {
            throw new IllegalStateException("this task is of a run that a newer one has replaced");
        }
        if (current == null || current.options.epoch() != options.epoch() || current.failure.get() != null) {
            if (current != null) {
                current.end(new IOException("a newer run has begun"));
            }
            current = new SharedProducer(options);
        }
        return current;
    }

    /** From now on the task of this partition is woken by a failure. */
    void register(PartitionSender partition) {
        partitions.add(partition);
    }

    void unregister(PartitionSender partition) {
        partitions.remove(partition);
    }

    /** The envelope is copied before this returns. It waits while the buffer is full (max.block.ms). */
    void send(ProducerRecord<byte[], byte[]> envelope, PartitionSender callback) {
        producer.send(envelope, callback);
    }

    /** Have the sender thread look at this partition. */
    void schedule(PartitionSender partition) {
        acknowledged.add(partition);
    }

    void fail(TopicPartition intermediate, Exception reason) {
        end(new IOException("an envelope for " + intermediate + " was not written: " + reason, reason));
    }

    void requireNotFailed() throws IOException {
        IOException reason = failure.get();
        if (reason != null) {
            throw new IOException(reason.getMessage(), reason.getCause());
        }
    }

    /** The first reason stays. Another thread closes, because a producer's own thread cannot. */
    private void end(IOException reason) {
        if (failure.compareAndSet(null, reason)) {
            Thread closing = new Thread(() -> producer.close(Duration.ZERO), "reo-close");
            closing.setDaemon(true);
            closing.start();
            sender.interrupt();
            partitions.forEach(PartitionSender::interruptTask);
        }
    }

    private void sendAppended() {
        long lookedNs = System.nanoTime();
        while (failure.get() == null) {
            try {
                PartitionSender partition = acknowledged.poll(LEFT_OUT_WAITS_NS, TimeUnit.NANOSECONDS);
                if (partition != null) {
                    partition.sendAppended();
                }
                if (System.nanoTime() - lookedNs >= LEFT_OUT_WAITS_NS) {
                    for (PartitionSender each : partitions) {
                        each.sendLeftOut();
                    }
                    lookedNs = System.nanoTime();
                }
            } catch (IOException | InterruptedException ended) {
                // its reason is in `failure`, and every task meets it there
            } catch (RuntimeException | Error unexpected) {
                end(new IOException("the sender thread ended: " + unexpected, unexpected));
            }
        }
    }
}
