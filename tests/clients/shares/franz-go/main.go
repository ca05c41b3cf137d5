// One share consumer of franz-go, with the commands of tests/java/Sharing.java.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

type request struct {
	Do        string            `json:"do"`
	Group     string            `json:"group"`
	Topics    []string          `json:"topics"`
	Settings  map[string]string `json:"settings"`
	TimeoutMs int               `json:"timeout_ms"`
	Types     string            `json:"types"`
}

var acknowledgements = map[byte]kgo.AckStatus{
	'a': kgo.AckAccept, 'l': kgo.AckRelease, 'j': kgo.AckReject, 'n': kgo.AckRenew,
}

var (
	bootstrap []string
	client    *kgo.Client
	polled    []*kgo.Record

	// Outcomes since the last commit: franz-go also sends acknowledgements by itself.
	outcomesLock sync.Mutex
	outcomes     = map[string]any{}
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
			answer["code"] = code(err)
			answer["message"] = err.Error()
		} else {
			answer["value"] = value
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
	if client != nil {
		client.Close()
	}
}

func code(err error) int16 {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return kerr.UnknownServerError.Code
}

func done(asked request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch asked.Do {
	case "share":
		return 1, share(asked)
	case "share_poll":
		return poll(asked)
	case "share_acknowledge":
		for at, record := range polled {
			letter := asked.Types[min(at, len(asked.Types)-1)]
			if letter != '-' {
				record.Ack(acknowledgements[letter])
			}
		}
		return nil, nil
	case "share_commit":
		return commit(ctx)
	case "share_close":
		err := client.LeaveGroupContext(ctx)
		client.Close()
		client = nil
		return nil, err
	}
	return nil, fmt.Errorf("unknown: %s", asked.Do)
}

func share(asked request) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap...), kgo.ShareGroup(asked.Group), kgo.ConsumeTopics(asked.Topics...),
		kgo.ShareAckCallback(note),
	}
	for name, value := range asked.Settings {
		switch name {
		case "max.poll.records":
			number, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return err
			}
			options = append(options, kgo.ShareMaxRecords(int32(number)))
		case "share.acquire.mode":
			options = append(options, kgo.ShareMaxRecordsStrict())
		case "share.acknowledgement.mode":
			// It has one mode: what was not acknowledged is accepted by the next poll.
		default:
			return fmt.Errorf("franz-go has no setting %s", name)
		}
	}
	var err error
	client, err = kgo.NewClient(options...)
	return err
}

func note(_ *kgo.Client, results kgo.ShareAckResults) {
	outcomesLock.Lock()
	defer outcomesLock.Unlock()
	for _, result := range results {
		place := fmt.Sprintf("%s-%d", result.Topic, result.Partition)
		if result.Err != nil {
			outcomes[place] = result.Err.Error()
		} else if _, known := outcomes[place]; !known {
			outcomes[place] = nil
		}
	}
}

func poll(asked request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(asked.TimeoutMs)*time.Millisecond)
	defer cancel()
	fetches := client.PollFetches(ctx)
	polled = fetches.Records()
	for _, each := range fetches.Errors() {
		if !errors.Is(each.Err, context.DeadlineExceeded) {
			return nil, each.Err
		}
	}
	found := []map[string]any{}
	for _, record := range polled {
		found = append(found, map[string]any{
			"topic": record.Topic, "partition": record.Partition, "offset": record.Offset,
			"value": string(record.Value), "count": record.DeliveryCount(),
		})
	}
	return found, nil
}

func commit(ctx context.Context) (any, error) {
	if err := client.FlushAcks(ctx); err != nil {
		return nil, err
	}
	outcomesLock.Lock()
	defer outcomesLock.Unlock()
	found := outcomes
	outcomes = map[string]any{}
	return found, nil
}
