package reo;

import java.io.Serializable;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * What the query of a run says to its sink (replicator/sink_options.py). Spark's options are
 * texts: lists are lines with tabs, which no name of a topic contains.
 *
 * @param epoch of the run
 * @param routes by source topic
 * @param starts by source partition, the first offset that the run reads
 * @param producerConfig of Kafka's producer
 */
record SinkOptions(
        long epoch,
        HashMap<String, Route> routes,
        HashMap<TopicPartition, Long> starts,
        HashMap<String, Object> producerConfig)
    implements Serializable {

    private static final String OF_THE_PRODUCER = "kafka.";

    /**
     * @param identity of the source topic, 8 bytes
     * @param envelopeBytesMax of an envelope that has more than one record
     * @param first the source partition whose envelopes go to intermediate partition 0
     */
    record Route(byte[] identity, String intermediateTopic, int envelopeBytesMax, int first)
        implements Serializable {}

    static SinkOptions parse(Map<String, String> options) {
        HashMap<String, Route> routes = new HashMap<>();
        options.get("routes").lines().map(line -> line.split("\t")).forEach(route -> routes.put(
            route[0], new Route(HexFormat.of().parseHex(route[1]), route[2], Integer.parseInt(route[3]),
                Integer.parseInt(route[4]))));
        HashMap<TopicPartition, Long> starts = new HashMap<>();
        options.get("starts").lines().map(line -> line.split("\t")).forEach(start -> starts.put(
            new TopicPartition(start[0], Integer.parseInt(start[1])), Long.parseLong(start[2])));
        HashMap<String, Object> producerConfig = new HashMap<>();
        options.forEach((name, value) -> {
            if (name.startsWith(OF_THE_PRODUCER)) {
                producerConfig.put(name.substring(OF_THE_PRODUCER.length()), value);
            }
        });
        return new SinkOptions(Long.parseLong(options.get("epoch")), routes, starts, producerConfig);
    }
}
