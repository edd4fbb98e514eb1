import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A Streams application that counts how often each value comes: records of `input` are grouped by their value, through a
 * repartition topic, and counted in a store in memory with a changelog topic; the counts go to `output`. Asked from
 * outside: one call per line of stdin, one answer per line of stdout, both JSON. tests/groups/test_streams.py asks.
 * usage: java CountByKey.java INPUT OUTPUT NAME=VALUE...   (the settings of the application)
 */
public final class CountByKey {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        // Whatever logs to the console must not mix with the answers.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Properties settings = new Properties();
        for (String setting : List.of(arguments).subList(2, arguments.length))
            settings.setProperty(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        KafkaStreams application = application(arguments[0], arguments[1], settings);
        application.start();
        BufferedReader calls = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            answer.set("id", JSON.readTree(line).get("id"));
            answer.set("result", described(application));
            answers.println(answer);
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // nobody asks any more
    }

    private static KafkaStreams application(String input, String output, Properties settings) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .groupBy((key, value) -> value, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return new KafkaStreams(builder.build(), settings);
    }

    /** Its state, how many tasks it runs, and how many rebalances it has been part of. */
    private static JsonNode described(KafkaStreams application) {
        ObjectNode found = JSON.createObjectNode();
        found.put("state", application.state().toString());
        found.put("tasks", application.metadataForLocalThreads().stream().mapToInt(thread -> thread.activeTasks().size()).sum());
        found.put("rebalances", application.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("rebalance-total"))
            .mapToInt(metric -> ((Double) metric.metricValue()).intValue()).sum());
        return found;
    }
}
