import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor.MemberData;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * The bytes that members of Apache Kafka's own client exchange: one case per line of stdin, one answer per line of
 * stdout, both JSON. tests/support/java_bytes.py writes the cases and says what is in them.
 */
public final class MemberBytes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        // Whatever logs to the console must not mix with the answers.
        System.setOut(System.err);
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            JsonNode asked = JSON.readTree(line);
            answers.println(JSON.writeValueAsString(asked.has("read") ? read(asked) : write(asked)));
            answers.flush();
        }
    }

    /** What a member writes that was given an assignment, or none, in a generation, and joins again. */
    private static ObjectNode write(JsonNode asked) {
        ConsumerPartitionAssignor assignor = assignor(asked.get("assignor").asText());
        ObjectNode answer = JSON.createObjectNode();
        int generation = asked.get("generation").asInt();
        List<TopicPartition> given = partitions(asked.get("given"));
        if (generation >= 0) {
            // As the member gets it: the bytes are read again before the assignor hears of them.
            ByteBuffer assignment = ConsumerProtocol.serializeAssignment(new Assignment(given));
            answer.put("assignment", hex(assignment));
            assignor.onAssignment(ConsumerProtocol.deserializeAssignment(assignment),
                new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        }
        Set<String> topics = new HashSet<>();
        asked.get("topics").forEach(topic -> topics.add(topic.asText()));
        boolean keeps = assignor.supportedProtocols().contains(ConsumerPartitionAssignor.RebalanceProtocol.COOPERATIVE);
        Subscription subscription = new Subscription(new ArrayList<>(topics), assignor.subscriptionUserData(topics),
            keeps ? given : List.of(), generation, Optional.ofNullable(asked.path("rack").textValue()));
        ByteBuffer userData = subscription.userData();
        answer.put("user_data", userData == null ? null : hex(userData));
        answer.put("subscription", hex(ConsumerProtocol.serializeSubscription(subscription)));
        return answer;
    }

    /** What a leader makes of a member's bytes. */
    private static ObjectNode read(JsonNode asked) {
        ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(asked.get("read").asText()));
        Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes);
        ObjectNode answer = JSON.createObjectNode();
        subscription.topics().stream().sorted().forEach(answer.putArray("topics")::add);
        answer.put("rack", subscription.rackId().orElse(null));
        MemberData claim = switch (asked.get("assignor").asText()) {
            case "sticky" -> new ReadingSticky().claim(subscription);
            case "cooperative-sticky" -> new ReadingCooperativeSticky().claim(subscription);
            default -> new MemberData(subscription.ownedPartitions(), subscription.generationId());
        };
        ObjectNode claimed = answer.putObject("claimed");
        for (TopicPartition partition : claim.partitions)
            claimed.withArray("/" + partition.topic().replace("~", "~0").replace("/", "~1")).add(partition.partition());
        answer.put("generation", claim.generation.orElse(-1));
        return answer;
    }

    private static final class ReadingSticky extends StickyAssignor {
        MemberData claim(Subscription subscription) {
            return memberData(subscription);
        }
    }

    private static final class ReadingCooperativeSticky extends CooperativeStickyAssignor {
        MemberData claim(Subscription subscription) {
            return memberData(subscription);
        }
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

    private static List<TopicPartition> partitions(JsonNode json) {
        List<TopicPartition> all = new ArrayList<>();
        json.properties().forEach(entry ->
            entry.getValue().forEach(number -> all.add(new TopicPartition(entry.getKey(), number.intValue()))));
        return all;
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
