// Go's Kafka clients, driven from outside: one call per line of stdin, one answer per line of stdout, both JSON. Calls
// run beside each other, and an answer carries the id of its call: `result`, or `error`, the protocol's code (-1 for an
// error of the client's own), and `message`. Bytes are base64. go_client.py writes the calls.
// usage: clients franz-go|sarama|kafka-go
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	beginning = -2
	end       = -1
	// How long any one call may try: less than its caller waits, so that the client's own error is reported.
	patience = 60 * time.Second
)

type record struct {
	Offset    int64        `json:"offset"`
	Key       []byte       `json:"key"`
	Value     []byte       `json:"value"`
	Headers   [][2]*string `json:"headers"`
	Timestamp *int64       `json:"timestamp"`
}

// call holds the arguments of every call; each call uses some of them.
type call struct {
	ID              int               `json:"id"`
	Call            string            `json:"call"`
	Bootstrap       string            `json:"bootstrap"`
	Topic           string            `json:"topic"`
	Partition       int32             `json:"partition"`
	Partitions      int32             `json:"partitions"`
	Records         []record          `json:"records"`
	Compression     string            `json:"compression"`
	Acks            string            `json:"acks"`
	Idempotent      *bool             `json:"idempotent"`
	MaxRequestBytes int32             `json:"max_request_bytes"`
	TransactionalID string            `json:"transactional_id"`
	Reader          int               `json:"reader"`
	Start           int64             `json:"start"`
	Offset          int64             `json:"offset"`
	FetchWaitMS     int64             `json:"fetch_wait_ms"`
	TimeoutMS       int64             `json:"timeout_ms"`
	TimestampMS     int64             `json:"timestamp_ms"`
	Configs         map[string]string `json:"configs"`
	Name            string            `json:"name"`
	Value           string            `json:"value"`
}

type client interface {
	produce(call) error
	beginTransaction(call) error
	open(call) (reader, error)
	// Both with an offset of -1 for "none".
	offsetForTime(call) (int64, error)
	watermarks(call) (low, high int64, err error)
	topics(call) (map[string]int, error)
	createTopic(call) error
	deleteTopic(call) error
	growTopic(call) error
	topicConfigs(call) (map[string]*string, error)
	setTopicConfig(call) error
	// The protocol's code of an error of this client.
	code(error) (int, bool)
}

// reader has one partition assigned, without a group.
type reader interface {
	poll(timeout time.Duration) ([]record, error)
	seek(offset int64) error
	close()
}

var clients = map[string]client{"franz-go": franzClient{}, "sarama": saramaClient{}, "kafka-go": kafkaGoClient{}}

type session struct {
	client  client
	lock    sync.Mutex
	readers []reader
}

func (s *session) reader(number int) reader {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.readers[number]
}

func (s *session) open(c call) (int, error) {
	opened, err := s.client.open(c)
	if err != nil {
		return 0, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.readers = append(s.readers, opened)
	return len(s.readers) - 1, nil
}

func (s *session) result(c call) (any, error) {
	switch c.Call {
	case "produce":
		return nil, s.client.produce(c)
	case "begin_transaction":
		return nil, s.client.beginTransaction(c)
	case "open":
		return s.open(c)
	case "poll":
		return s.reader(c.Reader).poll(time.Duration(c.TimeoutMS) * time.Millisecond)
	case "seek":
		return nil, s.reader(c.Reader).seek(c.Offset)
	case "close":
		// Not awaited: a client may wait for the broker to answer its fetch.
		go s.reader(c.Reader).close()
		return nil, nil
	case "offset_for_time":
		return s.client.offsetForTime(c)
	case "watermarks":
		low, high, err := s.client.watermarks(c)
		return [2]int64{low, high}, err
	case "topics":
		return s.client.topics(c)
	case "create_topic":
		return nil, s.client.createTopic(c)
	case "delete_topic":
		return nil, s.client.deleteTopic(c)
	case "grow_topic":
		return nil, s.client.growTopic(c)
	case "topic_configs":
		return s.client.topicConfigs(c)
	case "set_topic_config":
		return nil, s.client.setTopicConfig(c)
	}
	return nil, fmt.Errorf("no such call: %q", c.Call)
}

func (s *session) answer(line []byte) map[string]any {
	var c call
	if err := json.Unmarshal(line, &c); err != nil {
		panic(err)
	}
	result, err := s.result(c)
	if err == nil {
		return map[string]any{"id": c.ID, "result": result}
	}
	code, known := s.client.code(err)
	if !known {
		code = -1
	}
	return map[string]any{"id": c.ID, "error": code, "message": err.Error()}
}

func main() {
	if len(os.Args) != 2 || clients[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: clients franz-go|sarama|kafka-go")
		os.Exit(2)
	}
	served := &session{client: clients[os.Args[1]]}
	var writing sync.Mutex
	answers := json.NewEncoder(os.Stdout)
	calls := bufio.NewReader(os.Stdin)
	for {
		line, err := calls.ReadBytes('\n')
		if err != nil {
			return // the caller is gone
		}
		go func() {
			answer := served.answer(line)
			writing.Lock()
			defer writing.Unlock()
			if err := answers.Encode(answer); err != nil {
				panic(err)
			}
		}()
	}
}
