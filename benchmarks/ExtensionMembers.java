import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of one group with Kafka's own client, many in one JVM: what benchmarks/extension_members.py is for the Python
 * clients, with commands on stdin and events on stdout, in the same format.
 *
 * <p>Arguments: bootstrap, group, topic, heartbeat ms, session ms, metadata max age ms, range or roundrobin.
 */
public class ExtensionMembers {
    private static final Duration POLL = Duration.ofSeconds(1);

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String name = line.strip();
            Thread thread = new Thread(() -> live(name, args));
            thread.setDaemon(true);
            thread.start();
        }
        // At once: static members do not leave.
        Runtime.getRuntime().halt(0);
    }

    private static void live(String name, String[] args) {
        Set<Integer> seen = new HashSet<>();
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                report(name, "revoked", numbers(partitions));
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                seen.removeAll(numbers(partitions));
                report(name, "assigned", numbers(partitions));
            }
        };
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(name, args))) {
            consumer.subscribe(List.of(args[2]), listener);
            while (true) {
                Set<Integer> first = numbers(consumer.poll(POLL).partitions());
                first.removeAll(seen);
                if (!first.isEmpty()) {
                    seen.addAll(first);
                    report(name, "consumed", first);
                }
            }
        } catch (RuntimeException error) {
            String what = error.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ");
            say(name, "failed", Set.of(), ", \"error\": \"" + what + "\"");
        }
    }

    private static Properties settings(String name, String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("group.instance.id", name);
        settings.put("heartbeat.interval.ms", args[3]);
        settings.put("session.timeout.ms", args[4]);
        settings.put("metadata.max.age.ms", args[5]);
        settings.put("auto.offset.reset", "latest");
        settings.put("enable.auto.commit", "false");
        Class<?> assignor = args[6].equals("range") ? RangeAssignor.class : RoundRobinAssignor.class;
        settings.put("partition.assignment.strategy", assignor.getName());
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private static Set<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void report(String name, String event, Set<Integer> partitions) {
        say(name, event, partitions, "");
    }

    /** The clock is the one that Python calls monotonic. */
    private static synchronized void say(String name, String event, Set<Integer> partitions, String more) {
        double at = System.nanoTime() / 1e9;
        System.out.printf(
                java.util.Locale.ROOT,
                "{\"at\": %.6f, \"member\": \"%s\", \"event\": \"%s\", \"partitions\": %s%s}%n",
                at, name, event, partitions, more);
        System.out.flush();
    }
}
