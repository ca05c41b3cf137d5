// A short conversation with franz-go: topics, every codec, a group, settings, offsets, deletion.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const perCodec = 20

func main() {
	if len(os.Args) == 2 {
		secured(os.Args[1])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bootstrap, topic := os.Args[1], os.Args[2]
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)

	retention := "3600000"
	created, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic)
	check(err)
	check(created.Err)
	total := produce(ctx, bootstrap, topic)
	consume(ctx, bootstrap, topic, total)
	administer(ctx, admin, topic, total)
	fmt.Println("SUCCESS")
}

func produce(ctx context.Context, bootstrap, topic string) int {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	total := 0
	for index, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
		check(err)
		records := make([]*kgo.Record, 0, perCodec)
		for n := 0; n < perCodec; n++ {
			headers := []kgo.RecordHeader{{Key: "codec", Value: []byte{byte(index)}}}
			text := fmt.Sprintf("%d-%d", index, n)
			records = append(records, &kgo.Record{Topic: topic, Key: []byte(text), Value: []byte(text), Headers: headers})
		}
		check(producer.ProduceSync(ctx, records...).FirstErr())
		producer.Close()
		total += len(records)
	}
	return total
}

func consume(ctx context.Context, bootstrap, topic string, total int) {
	member, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(topic+"-group"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	)
	check(err)
	defer member.Close()
	seen := map[string]bool{}
	for len(seen) < total {
		fetches := member.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			require(string(record.Key) == string(record.Value) && len(record.Headers) == 1, "a record as it was written")
			seen[string(record.Key)] = true
		})
	}
	check(member.CommitUncommittedOffsets(ctx))
}

func administer(ctx context.Context, admin *kadm.Client, topic string, total int) {
	metadata, err := admin.Metadata(ctx, topic)
	check(err)
	require(len(metadata.Topics[topic].Partitions) == 2, "two partitions")
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err)
	described, err := configs.On(topic, nil)
	check(err)
	for _, config := range described.Configs {
		if config.Key == "retention.ms" {
			require(config.MaybeValue() == "3600000", "the setting that was made")
		}
	}
	value := "7200000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, topic)
	check(err)
	for _, each := range altered {
		check(each.Err)
	}
	grown, err := admin.UpdatePartitions(ctx, 3, topic)
	check(err)
	check(grown.Error())
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err)
	sum := int64(0)
	deletions := kadm.Offsets{}
	ends.Each(func(offset kadm.ListedOffset) {
		check(offset.Err)
		sum += offset.Offset
		deletions.AddOffset(offset.Topic, offset.Partition, offset.Offset, -1)
	})
	require(sum == int64(total), "offsets that add up")
	deleted, err := admin.DeleteRecords(ctx, deletions)
	check(err)
	check(deleted.Error())
	gone, err := admin.DeleteTopic(ctx, topic)
	check(err)
	check(gone.Err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func require(holds bool, what string) {
	if !holds {
		check(fmt.Errorf("expected %s", what))
	}
}
