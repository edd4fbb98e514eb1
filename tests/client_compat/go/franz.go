package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzClient struct{}

func (franzClient) code(err error) (int, bool) {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return int(refused.Code), true
	}
	return 0, false
}

// -- producing --------------------------------------------------------------------------------------------------------

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var franzAcks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func (franzClient) produce(c call) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// It asks again for a topic that is being created after five seconds, unless it is configured otherwise.
		kgo.MetadataMinAge(100 * time.Millisecond),
		// A busy Kafka may take longer to create the topic than the four failures that a record survives by default.
		// The context ends the attempts.
		kgo.UnknownTopicRetries(-1),
	}
	if codec, given := franzCodecs[c.Compression]; given {
		options = append(options, kgo.ProducerBatchCompression(codec))
	}
	if acks, given := franzAcks[c.Acks]; given {
		options = append(options, kgo.RequiredAcks(acks))
	}
	if c.Idempotent != nil && !*c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if c.MaxRequestBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(c.MaxRequestBytes))
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for _, one := range c.Records {
		made := &kgo.Record{Topic: c.Topic, Partition: c.Partition, Key: one.Key, Value: one.Value}
		if one.Timestamp != nil {
			made.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, header := range one.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: *header[0], Value: headerValue(header)})
		}
		records = append(records, made)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func (franzClient) beginTransaction(c call) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap), kgo.TransactionalID(c.TransactionalID))
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _, err = producer.ProducerID(ctx)
	return err
}

// -- reading ----------------------------------------------------------------------------------------------------------

type franzReader struct {
	client   *kgo.Client
	call     call
	fetching bool
}

func (f franzClient) open(c call) (reader, error) {
	start := c.Start
	if start < 0 {
		// The end of now, not that of the first poll.
		low, high, err := f.watermarks(c)
		if err != nil {
			return nil, err
		}
		start = map[int64]int64{beginning: low, end: high}[start]
	}
	at := map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: kgo.NewOffset().At(start)}}
	options := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap), kgo.ConsumePartitions(at)}
	if c.FetchWaitMS > 0 {
		options = append(options, kgo.FetchMaxWait(time.Duration(c.FetchWaitMS)*time.Millisecond))
	}
	consumer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return &franzReader{client: consumer, call: c}, nil
}

func (r *franzReader) poll(timeout time.Duration) ([]record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	fetches := r.client.PollFetches(ctx)
	polled := []record{}
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	fetches.EachRecord(func(one *kgo.Record) {
		read := readRecord(one.Offset, one.Timestamp, one.Key, one.Value)
		for _, header := range one.Headers {
			read.Headers = append(read.Headers, headerOf(header.Key, header.Value))
		}
		polled = append(polled, read)
		r.fetching = true
	})
	return polled, nil
}

func (r *franzReader) seek(offset int64) error {
	if !r.fetching {
		// It seeks only in partitions that it is fetching already.
		if _, err := r.poll(patience); err != nil {
			return err
		}
	}
	if offset == beginning {
		low, _, err := franzClient{}.watermarks(r.call)
		if err != nil {
			return err
		}
		offset = low
	}
	to := map[int32]kgo.EpochOffset{r.call.Partition: {Epoch: -1, Offset: offset}}
	r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.call.Topic: to})
	return nil
}

func (r *franzReader) close() { r.client.Close() }

// -- topics -----------------------------------------------------------------------------------------------------------

func withFranzAdmin[T any](c call, use func(context.Context, *kadm.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		var nothing T
		return nothing, err
	}
	defer admin.Close()
	return use(ctx, admin)
}

func franzOffset(c call, listed kadm.ListedOffsets, err error) (kadm.ListedOffset, error) {
	if err != nil {
		return kadm.ListedOffset{}, err
	}
	found, _ := listed.Lookup(c.Topic, c.Partition)
	return found, found.Err
}

func (franzClient) offsetForTime(c call) (int64, error) {
	return withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (int64, error) {
		listed, err := admin.ListOffsetsAfterMilli(ctx, c.TimestampMS, c.Topic)
		found, err := franzOffset(c, listed, err)
		if err == nil && found.Timestamp < 0 {
			return -1, nil // past the last record it is the end of the partition, without a time
		}
		return found.Offset, err
	})
}

func (franzClient) watermarks(c call) (int64, int64, error) {
	both, err := withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) ([2]int64, error) {
		listed, err := admin.ListStartOffsets(ctx, c.Topic)
		low, err := franzOffset(c, listed, err)
		if err != nil {
			return [2]int64{}, err
		}
		listed, err = admin.ListEndOffsets(ctx, c.Topic)
		high, err := franzOffset(c, listed, err)
		return [2]int64{low.Offset, high.Offset}, err
	})
	return both[0], both[1], err
}

func (franzClient) topics(c call) (map[string]int, error) {
	return withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]int, error) {
		listed, err := admin.ListTopicsWithInternal(ctx)
		partitions := map[string]int{}
		for name, topic := range listed {
			partitions[name] = len(topic.Partitions)
		}
		return partitions, err
	})
}

func (franzClient) createTopic(c call) error {
	_, err := withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (any, error) {
		configs := map[string]*string{}
		for name, value := range c.Configs {
			configs[name] = &value
		}
		created, err := admin.CreateTopic(ctx, c.Partitions, 1, configs, c.Topic)
		return nil, errors.Join(err, created.Err)
	})
	return err
}

func (franzClient) deleteTopic(c call) error {
	_, err := withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (any, error) {
		deleted, err := admin.DeleteTopic(ctx, c.Topic)
		return nil, errors.Join(err, deleted.Err)
	})
	return err
}

func (franzClient) growTopic(c call) error {
	_, err := withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (any, error) {
		grown, err := admin.UpdatePartitions(ctx, int(c.Partitions), c.Topic)
		return nil, errors.Join(err, grown.Error())
	})
	return err
}

func (franzClient) topicConfigs(c call) (map[string]*string, error) {
	return withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]*string, error) {
		described, err := admin.DescribeTopicConfigs(ctx, c.Topic)
		if err != nil {
			return nil, err
		}
		topic, err := described.On(c.Topic, nil)
		configs := map[string]*string{}
		for _, entry := range topic.Configs {
			configs[entry.Key] = entry.Value
		}
		return configs, errors.Join(err, topic.Err)
	})
}

func (franzClient) setTopicConfig(c call) error {
	_, err := withFranzAdmin(c, func(ctx context.Context, admin *kadm.Client) (any, error) {
		set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: c.Name, Value: &c.Value}}
		altered, err := admin.AlterTopicConfigs(ctx, set, c.Topic)
		if err != nil {
			return nil, err
		}
		topic, err := altered.On(c.Topic, nil)
		return nil, errors.Join(err, topic.Err)
	})
	return err
}
