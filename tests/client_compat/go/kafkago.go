package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGoClient struct{}

func (kafkaGoClient) code(err error) (int, bool) {
	var refused kafka.Error
	if errors.As(err, &refused) {
		return int(refused), true
	}
	return 0, false
}

// -- producing --------------------------------------------------------------------------------------------------------

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var kafkaGoAcks = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}

func (kafkaGoClient) produce(c call) error {
	if c.Idempotent != nil && *c.Idempotent {
		return errors.New("kafka-go has no idempotent producer")
	}
	acks, given := kafkaGoAcks[c.Acks]
	if !given {
		acks = kafka.RequireAll // its own default asks for no acknowledgement, and a caller of ours wants one
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(c.Bootstrap),
		Topic:                  c.Topic,
		Balancer:               kafka.BalancerFunc(func(kafka.Message, ...int) int { return int(c.Partition) }),
		BatchTimeout:           10 * time.Millisecond,
		BatchBytes:             int64(c.MaxRequestBytes),
		RequiredAcks:           acks,
		Compression:            kafkaGoCodecs[c.Compression],
		AllowAutoTopicCreation: true,
		Transport:              transport,
	}
	var messages []kafka.Message
	for _, one := range c.Records {
		made := kafka.Message{Key: one.Key, Value: one.Value}
		if one.Timestamp != nil {
			made.Time = time.UnixMilli(*one.Timestamp)
		}
		for _, header := range one.Headers {
			made.Headers = append(made.Headers, kafka.Header{Key: *header[0], Value: headerValue(header)})
		}
		messages = append(messages, made)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer writer.Close()
	for {
		err := writer.WriteMessages(ctx, messages...)
		// It asks for a topic once. The first answer after its creation is still that it is unknown, and its manual
		// says to write again then. Nothing has been sent so far.
		if !errors.Is(err, kafka.UnknownTopicOrPartition) || ctx.Err() != nil {
			return firstWriteError(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func firstWriteError(err error) error {
	var failed kafka.WriteErrors
	if errors.As(err, &failed) {
		for _, one := range failed {
			if one != nil {
				return one
			}
		}
	}
	return err
}

func (kafkaGoClient) beginTransaction(c call) error {
	_, err := withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (any, error) {
		asked := &kafka.InitProducerIDRequest{TransactionalID: c.TransactionalID, TransactionTimeoutMs: 60_000}
		answered, err := connected.InitProducerID(ctx, asked)
		if err != nil {
			return nil, err
		}
		return nil, answered.Error
	})
	return err
}

// -- reading ----------------------------------------------------------------------------------------------------------

type kafkaGoReader struct {
	call   call
	reader *kafka.Reader
}

func (k kafkaGoClient) open(c call) (reader, error) {
	config := kafka.ReaderConfig{Brokers: []string{c.Bootstrap}, Topic: c.Topic, Partition: int(c.Partition), MaxBytes: 10e6}
	if c.FetchWaitMS > 0 {
		config.MaxWait = time.Duration(c.FetchWaitMS) * time.Millisecond
	}
	opened := &kafkaGoReader{c, kafka.NewReader(config)}
	return opened, opened.seek(c.Start)
}

func (r *kafkaGoReader) poll(timeout time.Duration) ([]record, error) {
	polled := []record{}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer func() { cancel() }()
	for {
		message, err := r.reader.FetchMessage(ctx)
		if ctx.Err() != nil && err != nil {
			return polled, nil
		}
		var refused kafka.Error
		if errors.As(err, &refused) && !refused.Temporary() {
			return nil, err
		}
		if err != nil {
			continue // a lost connection or a broker that is just coming up: it tries again by itself
		}
		read := readRecord(message.Offset, message.Time, message.Key, message.Value)
		for _, header := range message.Headers {
			read.Headers = append(read.Headers, headerOf(header.Key, header.Value))
		}
		polled = append(polled, read)
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond) // and whatever it has besides
	}
}

func (r *kafkaGoReader) seek(offset int64) error {
	if offset == end {
		// The end of now, not that of the first fetch.
		_, high, err := kafkaGoClient{}.watermarks(r.call)
		if err != nil {
			return err
		}
		offset = high
	}
	return r.reader.SetOffset(offset) // its FirstOffset is the number of ListOffsets
}

func (r *kafkaGoReader) close() { r.reader.Close() }

// -- topics -----------------------------------------------------------------------------------------------------------

// A client with connections of its own: those that clients share know topics for some seconds after they are gone.
func withKafkaGo[T any](c call, use func(context.Context, *kafka.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	return use(ctx, &kafka.Client{Addr: kafka.TCP(c.Bootstrap), Transport: transport})
}

func kafkaGoOffsets(c call, asked ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	return withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (kafka.PartitionOffsets, error) {
		listed, err := connected.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{c.Topic: asked},
		})
		if err != nil {
			return kafka.PartitionOffsets{}, err
		}
		found := listed.Topics[c.Topic][0]
		return found, found.Error
	})
}

func (kafkaGoClient) offsetForTime(c call) (int64, error) {
	found, err := kafkaGoOffsets(c, kafka.TimeOffsetOf(int(c.Partition), time.UnixMilli(c.TimestampMS)))
	for offset := range found.Offsets {
		return offset, err
	}
	return -1, err
}

func (kafkaGoClient) watermarks(c call) (int64, int64, error) {
	partition := int(c.Partition)
	found, err := kafkaGoOffsets(c, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	return found.FirstOffset, found.LastOffset, err
}

func (kafkaGoClient) topics(c call) (map[string]int, error) {
	return withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (map[string]int, error) {
		described, err := connected.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		partitions := map[string]int{}
		for _, topic := range described.Topics {
			partitions[topic.Name] = len(topic.Partitions)
		}
		return partitions, nil
	})
}

func (kafkaGoClient) createTopic(c call) error {
	_, err := withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (any, error) {
		topic := kafka.TopicConfig{Topic: c.Topic, NumPartitions: int(c.Partitions), ReplicationFactor: 1}
		for name, value := range c.Configs {
			topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
		}
		created, err := connected.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err != nil {
			return nil, err
		}
		return nil, created.Errors[c.Topic]
	})
	return err
}

func (kafkaGoClient) deleteTopic(c call) error {
	_, err := withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (any, error) {
		deleted, err := connected.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
		if err != nil {
			return nil, err
		}
		return nil, deleted.Errors[c.Topic]
	})
	return err
}

func (kafkaGoClient) growTopic(c call) error {
	_, err := withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (any, error) {
		topic := kafka.TopicPartitionsConfig{Name: c.Topic, Count: c.Partitions}
		grown, err := connected.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
			Topics: []kafka.TopicPartitionsConfig{topic},
		})
		if err != nil {
			return nil, err
		}
		return nil, grown.Errors[c.Topic]
	})
	return err
}

func (kafkaGoClient) topicConfigs(c call) (map[string]*string, error) {
	return withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (map[string]*string, error) {
		topic := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}
		described, err := connected.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{topic},
		})
		if err != nil {
			return nil, err
		}
		configs := map[string]*string{}
		for _, entry := range described.Resources[0].ConfigEntries {
			configs[entry.ConfigName] = &entry.ConfigValue
		}
		return configs, described.Resources[0].Error
	})
}

func (kafkaGoClient) setTopicConfig(c call) error {
	_, err := withKafkaGo(c, func(ctx context.Context, connected *kafka.Client) (any, error) {
		set := kafka.IncrementalAlterConfigsRequestConfig{
			Name: c.Name, Value: c.Value, ConfigOperation: kafka.ConfigOperationSet,
		}
		topic := kafka.IncrementalAlterConfigsRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{set},
		}
		altered, err := connected.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{topic},
		})
		if err != nil {
			return nil, err
		}
		return nil, altered.Resources[0].Error
	})
	return err
}
