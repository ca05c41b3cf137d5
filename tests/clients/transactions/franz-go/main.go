// Transactions with franz-go; what is asked and answered stands in tests/clients/transactions/driven.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 60 * time.Second

type request struct {
	Do         string   `json:"do"`
	ID         string   `json:"id"`
	TimeoutMs  int      `json:"timeout_ms"`
	Group      string   `json:"group"`
	Topic      string   `json:"topic"`
	Actor      int      `json:"actor"`
	Partition  int32    `json:"partition"`
	Partitions int32    `json:"partitions"`
	Values     []string `json:"values"`
	Isolation  string   `json:"isolation"`
}

// A producer that has its transactional id, perhaps with the member of a group in one session.
type actor struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
}

var (
	bootstrap []string
	actors    []*actor
)

func main() {
	bootstrap = strings.Split(os.Args[1], ",")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		answer := map[string]any{}
		value, err := done(asked)
		if err != nil {
			answer["refused"] = name(err)
			answer["final"] = isFinal(err)
		} else {
			answer["value"] = value
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
	for _, each := range actors {
		each.client.Close()
	}
}

func name(err error) string {
	var told *kerr.Error
	if errors.As(err, &told) {
		return told.Message + ": " + err.Error()
	}
	return err.Error()
}

func isFinal(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.InvalidProducerIDMapping)
}

func done(asked request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch asked.Do {
	case "producer":
		client, err := kgo.NewClient(producing(asked)...)
		if err != nil {
			return nil, err
		}
		return added(ctx, &actor{client: client})
	case "transformer":
		options := append(producing(asked),
			kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.RequireStableFetchOffsets(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.FetchMaxWait(100*time.Millisecond))
		session, err := kgo.NewGroupTransactSession(options...)
		if err != nil {
			return nil, err
		}
		return added(ctx, &actor{client: session.Client(), session: session})
	case "read":
		return read(ctx, asked)
	}
	return actors[asked.Actor].done(ctx, asked)
}

func producing(asked request) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(bootstrap...), kgo.TransactionalID(asked.ID), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(time.Duration(asked.TimeoutMs) * time.Millisecond), kgo.ProducerLinger(0),
	}
}

// It takes its id over only when it is asked for it.
func added(ctx context.Context, fresh *actor) (any, error) {
	if _, _, err := fresh.client.ProducerID(ctx); err != nil {
		fresh.client.Close()
		return nil, err
	}
	actors = append(actors, fresh)
	return len(actors) - 1, nil
}

func (a *actor) done(ctx context.Context, asked request) (any, error) {
	switch asked.Do {
	case "begin":
		if a.session != nil {
			return nil, a.session.Begin()
		}
		return nil, a.client.BeginTransaction()
	case "send":
		var records []*kgo.Record
		for _, value := range asked.Values {
			records = append(records, &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Value: []byte(value)})
		}
		return nil, a.client.ProduceSync(ctx, records...).FirstErr()
	case "commit":
		return nil, a.end(ctx, kgo.TryCommit)
	case "abort":
		return nil, a.end(ctx, kgo.TryAbort)
	case "poll":
		return a.poll(ctx)
	case "leave":
		a.session.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("unknown: %s", asked.Do)
}

func (a *actor) end(ctx context.Context, try kgo.TransactionEndTry) error {
	if a.session == nil {
		return a.client.EndTransaction(ctx, try)
	}
	committed, err := a.session.End(ctx, try)
	if err == nil && committed != bool(try) {
		return errors.New("the session aborted the transaction")
	}
	return err
}

func (a *actor) poll(ctx context.Context) (any, error) {
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	found := [][]any{}
	fetches := a.session.PollRecords(soon, 10)
	for _, each := range fetches.Errors() {
		if !errors.Is(each.Err, context.DeadlineExceeded) {
			return nil, each.Err
		}
	}
	fetches.EachRecord(func(record *kgo.Record) {
		found = append(found, []any{record.Topic, record.Partition, record.Offset, string(record.Value)})
	})
	return found, nil
}

func read(ctx context.Context, asked request) (any, error) {
	values := make([][]string, asked.Partitions)
	starts := map[int32]kgo.Offset{}
	for number := range asked.Partitions {
		values[number] = []string{}
		starts[number] = kgo.NewOffset().At(0)
	}
	level := kgo.ReadUncommitted()
	if asked.Isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	// Markers are kept to see how far it has read: they stand at the end.
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: starts}), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	unread, err := ends(ctx, client, asked)
	if err != nil {
		return nil, err
	}
	for len(unread) > 0 {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				values[record.Partition] = append(values[record.Partition], string(record.Value))
			}
			if record.Offset+1 >= unread[record.Partition] {
				delete(unread, record.Partition)
			}
		})
	}
	return values, nil
}

func ends(ctx context.Context, client *kgo.Client, asked request) (map[int32]int64, error) {
	ask := kmsg.NewPtrListOffsetsRequest()
	if asked.Isolation == "read_committed" {
		ask.IsolationLevel = 1
	}
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = asked.Topic
	for number := range asked.Partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = number, -1
		topic.Partitions = append(topic.Partitions, partition)
	}
	ask.Topics = append(ask.Topics, topic)
	found := map[int32]int64{}
	answer, err := ask.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, each := range answer.Topics[0].Partitions {
		if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
			return nil, err
		}
		if each.Offset > 0 {
			found[each.Partition] = each.Offset
		}
	}
	return found, nil
}
