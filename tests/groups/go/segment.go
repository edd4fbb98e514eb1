package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

func runKafkaGo(ctx context.Context, c config) error {
	if c.InstanceID != nil {
		return errors.New("kafka-go has no static membership")
	}
	balancer := map[string]kafka.GroupBalancer{
		"range":      kafka.RangeGroupBalancer{},
		"roundrobin": kafka.RoundRobinGroupBalancer{},
	}[c.Assignor]
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                     c.Group,
		Brokers:                []string{c.Bootstrap},
		Topics:                 []string{c.Topic},
		GroupBalancers:         []kafka.GroupBalancer{balancer},
		HeartbeatInterval:      millis(c.HeartbeatIntervalMs),
		SessionTimeout:         millis(c.SessionTimeoutMs),
		RebalanceTimeout:       time.Minute,
		JoinGroupBackoff:       500 * time.Millisecond,
		StartOffset:            kafka.FirstOffset,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: millis(c.MetadataMaxAgeMs),
	})
	if err != nil {
		return err
	}
	defer group.Close()
	for {
		generation, err := group.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			tell("error", fields{"error": err.Error()})
			continue
		}
		assigned := []int32{}
		for _, partition := range generation.Assignments[c.Topic] {
			assigned = append(assigned, int32(partition.ID))
		}
		tellPartitions("partitions_assigned", c.Topic, assigned)
		// A generation ends as soon as one of its functions returns: this one stays until it has ended.
		generation.Start(func(ended context.Context) {
			<-ended.Done()
			tellPartitions("partitions_revoked", c.Topic, assigned)
		})
		for _, partition := range generation.Assignments[c.Topic] {
			generation.Start(func(ended context.Context) {
				readPartition(ended, c, generation, partition)
				<-ended.Done()
			})
		}
	}
}

func readPartition(
	ended context.Context, c config, generation *kafka.Generation, partition kafka.PartitionAssignment,
) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.Bootstrap}, Topic: c.Topic, Partition: partition.ID, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(partition.Offset); err != nil {
		tell("error", fields{"error": err.Error()})
		return
	}
	for ended.Err() == nil {
		message, err := reader.ReadMessage(ended)
		if err != nil {
			return
		}
		tellConsumed(c.Topic, int32(partition.ID), message.Offset, message.Offset)
		offsets := map[string]map[int]int64{c.Topic: {partition.ID: message.Offset + 1}}
		tellCommitted(c.Topic, int32(partition.ID), message.Offset+1, generation.CommitOffsets(offsets))
	}
}
