import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer, consumer and admin, driven from outside: one call per line of stdin, one answer per line of
 * stdout, both JSON. Calls run beside each other, and an answer carries the id of its call: `result`, or `error`, the
 * protocol's code, and `message`, the failure with its causes. Bytes are base64. tests/client_compat/java_client.py writes the calls.
 */
public final class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final long BEGINNING = -2;
    private static final long END = -1;

    /** A consumer with one partition assigned to it. */
    private record Reader(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {}

    private static final Map<Integer, Reader> READERS = new ConcurrentHashMap<>();
    private static final AtomicInteger OPENED = new AtomicInteger();

    public static void main(String[] arguments) throws IOException {
        // Whatever logs to the console must not mix with the answers.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader calls = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        ExecutorService pool = Executors.newCachedThreadPool();
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            JsonNode call = JSON.readTree(line);
            pool.execute(() -> {
                String answer = answer(call).toString();
                synchronized (answers) {
                    answers.println(answer);
                    answers.flush();
                }
            });
        }
        System.exit(0); // the process that asked is gone
    }

    private static ObjectNode answer(JsonNode call) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", call.get("id"));
        try {
            answer.set("result", JSON.valueToTree(result(call)));
        } catch (Exception failure) {
            Throwable cause = failure;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null)
                cause = cause.getCause();
            answer.put("error", Errors.forException(cause).code());
            answer.put("message", words(cause));
        }
        return answer;
    }

    private static String words(Throwable failure) {
        StringBuilder words = new StringBuilder(failure.toString());
        for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause())
            words.append(", because of ").append(cause);
        return words.toString();
    }

    private static Object result(JsonNode call) throws Exception {
        return switch (call.get("call").asText()) {
            case "produce" -> produce(call);
            case "begin_transaction" -> beginTransaction(call);
            case "open" -> open(call);
            case "seek" -> seek(call);
            case "position" -> position(call);
            case "poll" -> poll(call);
            case "close" -> close(call);
            case "offset_for_time" -> offsetForTime(call);
            case "watermarks" -> watermarks(call);
            case "partitions_for" -> partitionsFor(call);
            default -> withAdmin(call);
        };
    }

    // -- producing -----------------------------------------------------------------------------------------------------

    private static Object produce(JsonNode call) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(call)) {
            for (JsonNode record : call.get("records")) {
                ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                    call.get("topic").asText(), call.get("partition").asInt(),
                    record.get("timestamp").isNull() ? null : record.get("timestamp").asLong(),
                    bytes(record.get("key")), bytes(record.get("value")));
                for (JsonNode header : record.get("headers"))
                    made.headers().add(header.get(0).asText(), bytes(header.get(1)));
                sent.add(producer.send(made));
            }
            producer.flush();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> one : sent)
                offsets.add(one.get().offset());
            return offsets;
        }
    }

    private static Object beginTransaction(JsonNode call) {
        try (KafkaProducer<byte[], byte[]> producer = producer(call)) {
            producer.initTransactions();
            return null;
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode call) {
        return new KafkaProducer<>(settings(call), new ByteArraySerializer(), new ByteArraySerializer());
    }

    // -- reading -------------------------------------------------------------------------------------------------------

    private static Object open(JsonNode call) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(call);
        int number = OPENED.incrementAndGet();
        READERS.put(number, new Reader(consumer, partition(call)));
        consumer.assign(List.of(partition(call)));
        goTo(consumer, partition(call), call.get("start").asLong());
        return number;
    }

    private static Object seek(JsonNode call) {
        Reader reader = READERS.get(call.get("reader").asInt());
        long offset = call.get("offset").asLong();
        if (call.has("leader_epoch")) {
            // With the epoch that the offset is of, the consumer asks the broker whether it still is.
            Optional<Integer> epoch = Optional.of(call.get("leader_epoch").asInt());
            reader.consumer().seek(reader.partition(), new OffsetAndMetadata(offset, epoch, ""));
        } else {
            goTo(reader.consumer(), reader.partition(), offset);
        }
        return null;
    }

    private static void goTo(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long offset) {
        if (offset == BEGINNING)
            consumer.seekToBeginning(List.of(partition));
        else if (offset == END)
            consumer.seekToEnd(List.of(partition));
        else
            consumer.seek(partition, offset);
        // The beginning and the end are looked for here and now, not when somebody polls.
        consumer.position(partition, PATIENCE);
    }

    private static Object position(JsonNode call) {
        Reader reader = READERS.get(call.get("reader").asInt());
        return reader.consumer().position(reader.partition(), PATIENCE);
    }

    private static Object poll(JsonNode call) {
        ArrayNode records = JSON.createArrayNode();
        Reader reader = READERS.get(call.get("reader").asInt());
        for (ConsumerRecord<byte[], byte[]> record : reader.consumer().poll(Duration.ofMillis(call.get("timeout_ms").asLong()))) {
            ObjectNode stored = records.addObject();
            stored.put("offset", record.offset());
            stored.put("timestamp", record.timestamp());
            stored.put("key", record.key());
            stored.put("value", record.value());
            ArrayNode headers = stored.putArray("headers");
            for (Header header : record.headers())
                headers.addArray().add(header.key()).add(header.value());
        }
        return records;
    }

    private static Object close(JsonNode call) {
        // At once: a broker may hold our fetch for longer than a test should wait.
        READERS.remove(call.get("reader").asInt()).consumer().close(CloseOptions.timeout(Duration.ZERO));
        return null;
    }

    private static Object offsetForTime(JsonNode call) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(call)) {
            TopicPartition partition = partition(call);
            Map<TopicPartition, Long> asked = Map.of(partition, call.get("timestamp_ms").asLong());
            OffsetAndTimestamp found = consumer.offsetsForTimes(asked, PATIENCE).get(partition);
            return found == null ? null : found.offset();
        }
    }

    private static Object watermarks(JsonNode call) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(call)) {
            TopicPartition partition = partition(call);
            return List.of(
                consumer.beginningOffsets(List.of(partition), PATIENCE).get(partition),
                consumer.endOffsets(List.of(partition), PATIENCE).get(partition));
        }
    }

    private static Object partitionsFor(JsonNode call) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(call)) {
            return consumer.partitionsFor(call.get("topic").asText(), PATIENCE).stream()
                .map(found -> List.of(found.partition(), found.leader().id(), found.inSyncReplicas().length))
                .toList();
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode call) {
        return new KafkaConsumer<>(settings(call), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    // -- topics --------------------------------------------------------------------------------------------------------

    private static Object withAdmin(JsonNode call) throws Exception {
        try (Admin admin = Admin.create(settings(call))) {
            switch (call.get("call").asText()) {
                case "topics": return described(admin, admin.listTopics().names().get(), 2000);
                case "describe_topics": return described(admin, texts(call.get("topics")), call.get("page").asInt());
                case "create_topic": return createTopic(admin, call);
                case "delete_topic": admin.deleteTopics(List.of(call.get("topic").asText())).all().get(); break;
                case "grow_topic": admin.createPartitions(grown(call)).all().get(); break;
                case "topic_configs": return topicConfigs(admin, call);
                case "set_topic_config": setTopicConfig(admin, call); break;
                case "remove_members": removeMembers(admin, call); break;
                default: throw new IllegalArgumentException("no such call: " + call);
            }
            return null;
        }
    }

    /** How many partitions each of the topics has, asked for in pages of so many. */
    private static Map<String, Integer> described(Admin admin, Collection<String> names, int page) throws Exception {
        DescribeTopicsOptions options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(page);
        Map<String, Integer> partitions = new HashMap<>();
        var found = admin.describeTopics(TopicCollection.ofTopicNames(names), options).topicNameValues();
        for (var topic : found.entrySet()) {
            try {
                TopicDescription description = topic.getValue().get();
                partitions.put(topic.getKey(), description.partitions().size());
            } catch (ExecutionException failure) {
                // A topic that went after it was listed.
                if (Errors.forException(failure.getCause()) != Errors.UNKNOWN_TOPIC_OR_PARTITION)
                    throw failure;
            }
        }
        return partitions;
    }

    private static Object createTopic(Admin admin, JsonNode call) throws Exception {
        String topic = call.get("topic").asText();
        int partitions = call.get("partitions").asInt();
        NewTopic made = new NewTopic(topic, partitions, (short) 1).configs(map(call.get("configs")));
        admin.createTopics(List.of(made)).all().get();
        // Kafka answers before its metadata has the topic and before the partitions have leaders.
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (int number = 0; number < partitions; number++)
            ends.put(new TopicPartition(topic, number), OffsetSpec.latest());
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            try {
                admin.listOffsets(ends).all().get();
                return null;
            } catch (ExecutionException failure) {
                boolean isUnknown = Errors.forException(failure.getCause()) == Errors.UNKNOWN_TOPIC_OR_PARTITION;
                if (!isUnknown || System.nanoTime() > deadline)
                    throw failure;
                Thread.sleep(20);
            }
        }
    }

    private static Map<String, NewPartitions> grown(JsonNode call) {
        return Map.of(call.get("topic").asText(), NewPartitions.increaseTo(call.get("partitions").asInt()));
    }

    private static Object topicConfigs(Admin admin, JsonNode call) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, call.get("topic").asText());
        Map<String, String> configs = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(topic)).all().get().get(topic).entries())
            configs.put(entry.name(), entry.value());
        return configs;
    }

    private static void setTopicConfig(Admin admin, JsonNode call) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, call.get("topic").asText());
        ConfigEntry entry = new ConfigEntry(call.get("name").asText(), call.get("value").asText());
        admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
    }

    // -- groups --------------------------------------------------------------------------------------------------------

    /** These static members of a group; without any, all members. */
    private static void removeMembers(Admin admin, JsonNode call) throws Exception {
        List<MemberToRemove> members = texts(call.get("instance_ids")).stream().map(MemberToRemove::new).toList();
        RemoveMembersFromConsumerGroupOptions options = members.isEmpty()
            ? new RemoveMembersFromConsumerGroupOptions()
            : new RemoveMembersFromConsumerGroupOptions(members);
        admin.removeMembersFromConsumerGroup(call.get("group").asText(), options).all().get();
    }

    // -- what is in a call ---------------------------------------------------------------------------------------------

    private static Map<String, Object> settings(JsonNode call) {
        return new HashMap<>(map(call.get("settings")));
    }

    private static TopicPartition partition(JsonNode call) {
        return new TopicPartition(call.get("topic").asText(), call.get("partition").asInt());
    }

    private static Map<String, String> map(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.fields().forEachRemaining(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }

    private static List<String> texts(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(one -> found.add(one.asText()));
        return found;
    }

    private static byte[] bytes(JsonNode base64) throws IOException {
        return base64.isNull() ? null : base64.binaryValue();
    }
}
