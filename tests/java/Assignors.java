import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupAssignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * The assignors of Apache Kafka's own client, asked from outside: one case per line of stdin, one answer per line of
 * stdout, both JSON; the line "again" asks the last case once more. tests/support/java_assignors.py writes the cases
 * and says what is in them.
 */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        // Whatever logs to the console must not mix with the answers.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader cases = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        Case last = null;
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            if (!line.equals("again"))
                last = Case.read(line);
            answers.println(JSON.writeValueAsString(answer(last)));
            answers.flush();
        }
    }

    /** What one line asks for, without the line itself: that must not count as memory of the assignor. */
    private record Case(String assignor, Cluster cluster, List<Member> members, int repeat, double seconds,
                        boolean wantsAssignments, boolean wantsMemory) {
        static Case read(String line) throws Exception {
            JsonNode json = JSON.readTree(line);
            List<List<String>> lists = new ArrayList<>();
            json.path("subscriptions").forEach(list -> lists.add(strings(list)));
            List<Member> members = new ArrayList<>();
            json.get("members").properties().forEach(
                entry -> members.add(Member.read(entry.getKey(), entry.getValue(), lists)));
            return new Case(json.get("assignor").asText(), clusterOf(json), members, json.path("repeat").asInt(1),
                json.path("seconds").asDouble(120), json.path("assignments").asBoolean(true),
                json.path("memory").asBoolean(false));
        }
    }

    private record Member(String id, List<String> topics, byte[] userData, List<TopicPartition> owned, int generation,
                          Optional<String> rack, Optional<String> instance) {
        static Member read(String id, JsonNode json, List<List<String>> lists) {
            return new Member(id, topics(json.get("topics"), lists), binary(json.get("user_data")),
                partitions(json.path("owned")), json.path("generation").asInt(-1),
                Optional.ofNullable(json.path("rack").textValue()),
                Optional.ofNullable(json.path("instance").textValue()));
        }

        /** Made again for every run: an assignor reads user data by moving the buffer's position. */
        Subscription subscription() {
            ByteBuffer data = userData == null ? null : ByteBuffer.wrap(userData);
            Subscription subscription = new Subscription(topics, data, owned, generation, rack);
            subscription.setGroupInstanceId(instance);
            return subscription;
        }

        private static List<String> topics(JsonNode json, List<List<String>> lists) {
            if (!json.isInt())
                return strings(json);
            // Each member has strings of its own, as it has when subscriptions come from the wire.
            List<String> own = new ArrayList<>();
            lists.get(json.intValue()).forEach(topic -> own.add(new String(topic)));
            return own;
        }

        private static byte[] binary(JsonNode json) {
            try {
                return json == null || json.isNull() ? null : json.binaryValue();
            } catch (java.io.IOException notBase64) {
                throw new IllegalArgumentException(notBase64);
            }
        }

        private static List<TopicPartition> partitions(JsonNode json) {
            List<TopicPartition> all = new ArrayList<>();
            json.properties().forEach(entry ->
                entry.getValue().forEach(number -> all.add(new TopicPartition(entry.getKey(), number.intValue()))));
            return all;
        }
    }

    private static ObjectNode answer(Case asked) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode times = answer.putArray("ns");
        ArrayNode written = answer.putArray("written_ns");
        GroupAssignment given = null;
        long deadline = System.nanoTime() + (long) (asked.seconds * 1e9);
        for (int run = 0; run < asked.repeat && (run == 0 || System.nanoTime() < deadline); run++) {
            given = null;
            ConsumerPartitionAssignor assignor = assignor(asked.assignor);
            GroupSubscription subscriptions = subscriptions(asked.members);
            if (asked.wantsMemory)
                beginMemory(answer);
            long began = System.nanoTime();
            given = assignor.assign(asked.cluster, subscriptions);
            times.add(System.nanoTime() - began);
            given.groupAssignment().values().forEach(ConsumerProtocol::serializeAssignment);
            written.add(System.nanoTime() - began);
            if (asked.wantsMemory)
                endMemory(answer);
        }
        if (asked.wantsAssignments)
            answer.set("assignments", assignments(given));
        return answer;
    }

    private static GroupSubscription subscriptions(List<Member> members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        members.forEach(member -> subscriptions.put(member.id, member.subscription()));
        return new GroupSubscription(subscriptions);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException("no such assignor: " + name);
        };
    }

    private static void beginMemory(ObjectNode answer) {
        System.gc();
        answer.put("heap_before", usedHeap());
        heapPools().forEach(MemoryPoolMXBean::resetPeakUsage);
    }

    /** The peak counts what was not yet collected; what is left after a collection is the least it could do with. */
    private static void endMemory(ObjectNode answer) {
        answer.put("heap_peak", heapPools().stream().mapToLong(pool -> pool.getPeakUsage().getUsed()).sum());
        System.gc();
        answer.put("heap_after", usedHeap());
    }

    private static long usedHeap() {
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private static List<MemoryPoolMXBean> heapPools() {
        return ManagementFactory.getMemoryPoolMXBeans().stream().filter(p -> p.getType() == MemoryType.HEAP).toList();
    }

    private static ObjectNode assignments(GroupAssignment given) {
        ObjectNode byMember = JSON.createObjectNode();
        for (Map.Entry<String, Assignment> entry : given.groupAssignment().entrySet()) {
            ObjectNode byTopic = byMember.putObject(entry.getKey());
            for (TopicPartition partition : entry.getValue().partitions())
                byTopic.withArray("/" + pointer(partition.topic())).add(partition.partition());
        }
        return byMember;
    }

    /** A topic as a step of a JSON pointer (RFC 6901). */
    private static String pointer(String topic) {
        return topic.replace("~", "~0").replace("/", "~1");
    }

    private static Cluster clusterOf(JsonNode json) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        json.get("partitions").properties().forEach(entry -> {
            JsonNode racks = json.path("racks").path(entry.getKey());
            for (int number = 0; number < entry.getValue().intValue(); number++) {
                Node[] replicas = replicas(racks.path(number), nodes);
                partitions.add(new PartitionInfo(entry.getKey(), number, replicas[0], replicas, replicas));
            }
        });
        Set<Node> all = new HashSet<>(nodes.values());
        return new Cluster("a-cluster", all, partitions, Set.of(), Set.of());
    }

    /** One node for each rack; a partition whose racks are unknown is on a node that has none. */
    private static Node[] replicas(JsonNode racks, Map<String, Node> nodes) {
        List<Node> replicas = new ArrayList<>();
        strings(racks).forEach(rack ->
            replicas.add(nodes.computeIfAbsent(rack, name -> new Node(nodes.size() + 1, "localhost", 9092, name))));
        if (replicas.isEmpty())
            replicas.add(nodes.computeIfAbsent("", none -> new Node(0, "localhost", 9092)));
        return replicas.toArray(new Node[0]);
    }

    private static List<String> strings(JsonNode json) {
        List<String> all = new ArrayList<>();
        json.forEach(text -> all.add(text.asText()));
        return all;
    }
}
