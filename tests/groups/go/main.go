// Consumers of Go's client families in a group. They print what happens as consumer_process.py does.
// usage: go-members franz-go|sarama|kafka-go CONFIG-AS-JSON
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// config has the fields of ConsumerConfig in consumer_process.py.
type config struct {
	Bootstrap           string  `json:"bootstrap"`
	Topic               string  `json:"topic"`
	Group               string  `json:"group"`
	InstanceID          *string `json:"instance_id"`
	Assignor            string  `json:"assignor"`
	SessionTimeoutMs    int     `json:"session_timeout_ms"`
	HeartbeatIntervalMs int     `json:"heartbeat_interval_ms"`
	MetadataMaxAgeMs    int     `json:"metadata_max_age_ms"`
}

func millis(count int) time.Duration { return time.Duration(count) * time.Millisecond }

var families = map[string]func(context.Context, config) error{
	"franz-go": runFranz,
	"sarama":   runSarama,
	"kafka-go": runKafkaGo,
}

func main() {
	if len(os.Args) != 3 || families[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go-members franz-go|sarama|kafka-go CONFIG-AS-JSON")
		os.Exit(2)
	}
	var c config
	if err := json.Unmarshal([]byte(os.Args[2]), &c); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tell("startup_complete", nil)
	if err := families[os.Args[1]](ctx, c); err != nil {
		fail(err)
	}
	tell("shutdown_complete", nil)
}

func fail(err error) {
	tell("error", fields{"error": err.Error()})
	os.Exit(1)
}

type fields map[string]any

var telling sync.Mutex

func tell(name string, more fields) {
	event := fields{"name": name}
	for key, value := range more {
		event[key] = value
	}
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(string(line))
}

// tellPartitions is for partitions_assigned and partitions_revoked.
func tellPartitions(name, topic string, partitions []int32) {
	entries := []fields{}
	for _, partition := range partitions {
		entries = append(entries, fields{"topic": topic, "partition": partition})
	}
	tell(name, fields{"partitions": entries})
}

// tellConsumed is for a run of records of one partition.
func tellConsumed(topic string, partition int32, first, last int64) {
	count := last - first + 1
	seen := fields{"topic": topic, "partition": partition, "count": count, "minOffset": first, "maxOffset": last}
	tell("records_consumed", fields{"count": count, "partitions": []fields{seen}})
}

func tellCommitted(topic string, partition int32, offset int64, err error) {
	committed := fields{"topic": topic, "partition": partition, "offset": offset}
	more := fields{"offsets": []fields{committed}, "success": err == nil}
	if err != nil {
		more["error"] = err.Error()
	}
	tell("offsets_committed", more)
}
