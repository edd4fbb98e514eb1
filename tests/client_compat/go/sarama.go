package main

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

func (saramaClient) code(err error) (int, bool) {
	var refused sarama.KError
	if errors.As(err, &refused) {
		return int(refused), true
	}
	return 0, false
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = sarama.MaxVersion
	// A busy Kafka may take longer to create a topic than three retries and three seconds, the defaults.
	config.Metadata.Retry.Max, config.Producer.Retry.Max = 100, 100
	config.Admin.Timeout = 30 * time.Second
	return config
}

// -- producing --------------------------------------------------------------------------------------------------------

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var saramaAcks = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

func (saramaClient) produce(c call) error {
	config := saramaConfig()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	if codec, given := saramaCodecs[c.Compression]; given {
		config.Producer.Compression = codec
	}
	if acks, given := saramaAcks[c.Acks]; given {
		config.Producer.RequiredAcks = acks
	}
	if c.Idempotent != nil && *c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1 // what it asks for beside idempotence
	}
	if c.MaxRequestBytes > 0 {
		config.Producer.MaxMessageBytes = int(c.MaxRequestBytes)
	}
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, one := range c.Records {
		made := &sarama.ProducerMessage{Topic: c.Topic, Partition: c.Partition}
		if one.Key != nil {
			made.Key = sarama.ByteEncoder(one.Key)
		}
		if one.Value != nil {
			made.Value = sarama.ByteEncoder(one.Value)
		}
		if one.Timestamp != nil {
			made.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, header := range one.Headers {
			sent := sarama.RecordHeader{Key: []byte(*header[0]), Value: headerValue(header)}
			made.Headers = append(made.Headers, sent)
		}
		messages = append(messages, made)
	}
	return firstOf(producer.SendMessages(messages))
}

// The error of the first record; what is sent together mostly fails together.
func firstOf(err error) error {
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		return failed[0].Err
	}
	return err
}

func (saramaClient) beginTransaction(c call) error {
	config := saramaConfig()
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = c.TransactionalID
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.BeginTxn()
}

// -- reading ----------------------------------------------------------------------------------------------------------

type saramaReader struct {
	call      call
	consumer  sarama.Consumer
	partition sarama.PartitionConsumer
}

func (saramaClient) open(c call) (reader, error) {
	config := saramaConfig()
	if c.FetchWaitMS > 0 {
		config.Consumer.MaxWaitTime = time.Duration(c.FetchWaitMS) * time.Millisecond
	}
	consumer, err := sarama.NewConsumer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	opened := &saramaReader{call: c, consumer: consumer}
	return opened, opened.start(c.Start)
}

func (r *saramaReader) start(offset int64) (err error) {
	// Its OffsetNewest and OffsetOldest are the numbers of ListOffsets.
	r.partition, err = r.consumer.ConsumePartition(r.call.Topic, r.call.Partition, offset)
	return err
}

func (r *saramaReader) poll(timeout time.Duration) ([]record, error) {
	polled := []record{}
	waited := time.After(timeout)
	for {
		select {
		case message := <-r.partition.Messages():
			polled = append(polled, saramaRecord(message))
			waited = time.After(time.Millisecond) // and whatever it has besides
		case <-waited:
			return polled, nil
		}
	}
}

func saramaRecord(message *sarama.ConsumerMessage) record {
	read := readRecord(message.Offset, message.Timestamp, message.Key, message.Value)
	for _, header := range message.Headers {
		read.Headers = append(read.Headers, headerOf(string(header.Key), header.Value))
	}
	return read
}

// It has no seeking: a partition is consumed again from another offset.
func (r *saramaReader) seek(offset int64) error {
	if err := r.partition.Close(); err != nil {
		return err
	}
	return r.start(offset)
}

func (r *saramaReader) close() {
	r.partition.Close()
	r.consumer.Close()
}

// -- topics -----------------------------------------------------------------------------------------------------------

func saramaOffset(c call, at int64) (int64, error) {
	connected, err := sarama.NewClient([]string{c.Bootstrap}, saramaConfig())
	if err != nil {
		return 0, err
	}
	defer connected.Close()
	return connected.GetOffset(c.Topic, c.Partition, at)
}

func (saramaClient) offsetForTime(c call) (int64, error) { return saramaOffset(c, c.TimestampMS) }

func (saramaClient) watermarks(c call) (int64, int64, error) {
	low, err := saramaOffset(c, sarama.OffsetOldest)
	if err != nil {
		return 0, 0, err
	}
	high, err := saramaOffset(c, sarama.OffsetNewest)
	return low, high, err
}

func withSaramaAdmin[T any](c call, use func(sarama.ClusterAdmin) (T, error)) (T, error) {
	admin, err := sarama.NewClusterAdmin([]string{c.Bootstrap}, saramaConfig())
	if err != nil {
		var nothing T
		return nothing, err
	}
	defer admin.Close()
	return use(admin)
}

func (saramaClient) topics(c call) (map[string]int, error) {
	return withSaramaAdmin(c, func(admin sarama.ClusterAdmin) (map[string]int, error) {
		listed, err := admin.ListTopics()
		partitions := map[string]int{}
		for name, topic := range listed {
			partitions[name] = int(topic.NumPartitions)
		}
		return partitions, err
	})
}

func (saramaClient) createTopic(c call) error {
	_, err := withSaramaAdmin(c, func(admin sarama.ClusterAdmin) (any, error) {
		configs := map[string]*string{}
		for name, value := range c.Configs {
			configs[name] = &value
		}
		detail := &sarama.TopicDetail{NumPartitions: c.Partitions, ReplicationFactor: 1, ConfigEntries: configs}
		return nil, admin.CreateTopic(c.Topic, detail, false)
	})
	return err
}

func (saramaClient) deleteTopic(c call) error {
	_, err := withSaramaAdmin(c, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.DeleteTopic(c.Topic)
	})
	return err
}

func (saramaClient) growTopic(c call) error {
	_, err := withSaramaAdmin(c, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.CreatePartitions(c.Topic, c.Partitions, nil, false)
	})
	return err
}

func (saramaClient) topicConfigs(c call) (map[string]*string, error) {
	return withSaramaAdmin(c, func(admin sarama.ClusterAdmin) (map[string]*string, error) {
		described, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
		configs := map[string]*string{}
		for _, entry := range described {
			configs[entry.Name] = &entry.Value
		}
		return configs, err
	})
}

func (saramaClient) setTopicConfig(c call) error {
	_, err := withSaramaAdmin(c, func(admin sarama.ClusterAdmin) (any, error) {
		set := sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &c.Value,
		}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{c.Name: set}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, entries, false)
	})
	return err
}
