// A member of a group with franz-go; what it is told and what it says stands in tests/clients/groups/telling.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type wanted struct {
	Name          string   `json:"name"`
	Bootstrap     string   `json:"bootstrap"`
	Group         string   `json:"group"`
	Topics        []string `json:"topics"`
	Pattern       *string  `json:"pattern"`
	Instance      *string  `json:"instance"`
	Protocol      string   `json:"protocol"`
	Assignor      string   `json:"assignor"`
	SessionMs     int      `json:"session_ms"`
	HeartbeatMs   int      `json:"heartbeat_ms"`
	MetadataAgeMs int      `json:"metadata_age_ms"`
}

type place struct {
	topic     string
	partition int32
}

type member struct {
	client *kgo.Client
	guard  sync.Mutex
	due    map[place]kgo.EpochOffset
}

func main() {
	var told wanted
	check(json.Unmarshal([]byte(os.Args[1]), &told))
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	it := &member{due: map[place]kgo.EpochOffset{}}
	client, err := kgo.NewClient(options(told, it)...)
	check(err)
	it.client = client
	for ctx.Err() == nil {
		it.poll(ctx)
	}
	say("closing", map[string]any{})
	client.Close()
	say("closed", map[string]any{})
}

func options(told wanted, it *member) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(told.Bootstrap, ",")...), kgo.ClientID(told.Name), kgo.ConsumerGroup(told.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Duration(told.MetadataAgeMs) * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.SessionTimeout(time.Duration(told.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(told.HeartbeatMs) * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			say("assigned", map[string]any{"places": places(given)})
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			it.drop(taken)
			say("revoked", map[string]any{"places": places(taken)})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			it.drop(taken)
			say("lost", map[string]any{"places": places(taken)})
		}),
	}
	if told.Pattern != nil {
		chosen = append(chosen, kgo.ConsumeTopics(*told.Pattern), kgo.ConsumeRegex())
	} else {
		chosen = append(chosen, kgo.ConsumeTopics(told.Topics...))
	}
	if told.Instance != nil {
		chosen = append(chosen, kgo.InstanceID(*told.Instance))
	}
	switch {
	case told.Protocol == "consumer" && told.Assignor == "uniform":
		chosen = append(chosen, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case told.Protocol == "consumer":
		chosen = append(chosen, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	case told.Assignor == "range":
		chosen = append(chosen, kgo.Balancers(kgo.RangeBalancer()))
	default:
		chosen = append(chosen, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	return chosen
}

// From a poll until AllowRebalance nothing is taken away: what was fetched is processed and committed in between.
func (it *member) poll(ctx context.Context) {
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	defer it.client.AllowRebalance()
	fetches := it.client.PollRecords(brief, 500)
	records := [][]any{}
	fetches.EachRecord(func(record *kgo.Record) {
		records = append(records, []any{record.Topic, record.Partition, record.Offset, string(record.Value)})
		it.guard.Lock()
		it.due[place{record.Topic, record.Partition}] = kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}
		it.guard.Unlock()
	})
	if len(records) > 0 {
		say("read", map[string]any{"records": records})
	}
	it.commit()
}

func (it *member) commit() {
	it.guard.Lock()
	offsets := map[string]map[int32]kgo.EpochOffset{}
	positions := [][]any{}
	for where, offset := range it.due {
		if offsets[where.topic] == nil {
			offsets[where.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[where.topic][where.partition] = offset
		positions = append(positions, []any{where.topic, where.partition, offset.Offset})
	}
	it.guard.Unlock()
	if len(positions) == 0 {
		return
	}
	asked := now()
	// A commit has its own time: one that was asked for is waited for, also by a member that is leaving.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var refusal error
	it.client.CommitOffsetsSync(ctx, offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, failure error) {
			refusal = refusalIn(answer, failure)
		})
	if refusal != nil {
		say("refused", map[string]any{"asked": asked, "positions": positions, "why": refusal.Error()})
		return
	}
	say("committed", map[string]any{"asked": asked, "positions": positions})
	it.guard.Lock()
	it.due = map[place]kgo.EpochOffset{}
	it.guard.Unlock()
}

func refusalIn(answer *kmsg.OffsetCommitResponse, failure error) error {
	if failure != nil {
		return failure
	}
	for _, topic := range answer.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

func (it *member) drop(taken map[string][]int32) {
	it.guard.Lock()
	defer it.guard.Unlock()
	for topic, partitions := range taken {
		for _, partition := range partitions {
			delete(it.due, place{topic, partition})
		}
	}
}

func places(given map[string][]int32) [][]any {
	found := [][]any{}
	for topic, partitions := range given {
		for _, partition := range partitions {
			found = append(found, []any{topic, partition})
		}
	}
	return found
}

// One write for one line, without a buffer: what was said stays said when the process is killed.
func say(did string, fields map[string]any) {
	fields["at"] = now()
	fields["did"] = did
	line, err := json.Marshal(fields)
	check(err)
	_, err = os.Stdout.Write(append(line, '\n'))
	check(err)
}

// CLOCK_MONOTONIC, which Go keeps to itself.
func now() int64 {
	var found syscall.Timespec
	const monotonic = 1
	_, _, failure := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&found)), 0)
	if failure != 0 {
		check(failure)
	}
	return found.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
