package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func runFranz(ctx context.Context, c config) error {
	report := func(name string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			tellPartitions(name, c.Topic, partitions[c.Topic])
		}
	}
	balancer := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}[c.Assignor]
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(millis(c.SessionTimeoutMs)),
		kgo.HeartbeatInterval(millis(c.HeartbeatIntervalMs)),
		kgo.MetadataMinAge(millis(min(c.MetadataMaxAgeMs, 500))),
		kgo.MetadataMaxAge(millis(c.MetadataMaxAgeMs)),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(report("partitions_assigned")),
		kgo.OnPartitionsRevoked(report("partitions_revoked")),
		kgo.OnPartitionsLost(report("partitions_revoked")),
	}
	if c.InstanceID != nil {
		options = append(options, kgo.InstanceID(*c.InstanceID))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	// Close leaves the group, unless the member is static.
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if errors.Is(failed.Err, kerr.FencedInstanceID) {
				return failed.Err
			}
		}
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			records := fetched.Records
			if len(records) == 0 {
				return
			}
			last := records[len(records)-1]
			tellConsumed(fetched.Topic, fetched.Partition, records[0].Offset, last.Offset)
			err := client.CommitRecords(ctx, last)
			tellCommitted(fetched.Topic, fetched.Partition, last.Offset+1, err)
		})
	}
	return nil
}
