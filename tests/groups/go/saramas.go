package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

func runSarama(ctx context.Context, c config) error {
	settings := sarama.NewConfig()
	settings.Version = sarama.V4_0_0_0
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Session.Timeout = millis(c.SessionTimeoutMs)
	settings.Consumer.Group.Heartbeat.Interval = millis(c.HeartbeatIntervalMs)
	settings.Metadata.RefreshFrequency = millis(c.MetadataMaxAgeMs)
	settings.Consumer.Return.Errors = true
	strategy := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	}[c.Assignor]
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	if c.InstanceID != nil {
		settings.Consumer.Group.InstanceId = *c.InstanceID
	}
	group, err := sarama.NewConsumerGroup([]string{c.Bootstrap}, c.Group, settings)
	if err != nil {
		return err
	}
	go func() {
		for err := range group.Errors() {
			tell("error", fields{"error": err.Error()})
		}
	}()
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{c.Topic}, handler{c.Topic})
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			return err
		}
		if err != nil {
			tell("error", fields{"error": err.Error()})
		}
	}
	// Close leaves the group, unless the member is static.
	return group.Close()
}

type handler struct{ topic string }

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	tellPartitions("partitions_assigned", h.topic, session.Claims()[h.topic])
	return nil
}

func (h handler) Cleanup(session sarama.ConsumerGroupSession) error {
	tellPartitions("partitions_revoked", h.topic, session.Claims()[h.topic])
	return nil
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			tellConsumed(message.Topic, message.Partition, message.Offset, message.Offset)
			session.MarkMessage(message, "")
			if len(claim.Messages()) == 0 {
				session.Commit()
				tellCommitted(message.Topic, message.Partition, message.Offset+1, nil)
			}
		}
	}
}
