// Every way into a secured node: the cells come as JSON, and each writes a record and reads it again.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type cell struct {
	Name, Bootstrap, Topic, Mechanism, User, Password, Token, Authority, Certificate string
}

func secured(path string) {
	content, err := os.ReadFile(path)
	check(err)
	var cells []cell
	check(json.Unmarshal(content, &cells))
	for _, each := range cells {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		roundTrip(ctx, each)
		cancel()
		fmt.Println("SUCCESS", each.Name)
	}
}

func roundTrip(ctx context.Context, each cell) {
	options := []kgo.Opt{kgo.SeedBrokers(each.Bootstrap)}
	if each.Authority != "" {
		options = append(options, kgo.DialTLSConfig(each.tls()))
	}
	if each.Mechanism != "" {
		options = append(options, kgo.SASL(each.mechanism()))
	}
	producer, err := kgo.NewClient(options...)
	check(err)
	defer producer.Close()
	written, err := producer.ProduceSync(ctx, &kgo.Record{Topic: each.Topic, Value: []byte(each.Name)}).First()
	check(err)
	from := map[string]map[int32]kgo.Offset{each.Topic: {written.Partition: kgo.NewOffset().At(written.Offset)}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from))...)
	check(err)
	defer consumer.Close()
	fetches := consumer.PollFetches(ctx)
	check(fetches.Err())
	if read := string(fetches.Records()[0].Value); read != each.Name {
		panic("read " + read)
	}
}

func (each cell) tls() *tls.Config {
	authority, err := os.ReadFile(each.Authority)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: trusted}
	if each.Certificate != "" {
		own, err := tls.LoadX509KeyPair(each.Certificate, each.Certificate)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func (each cell) mechanism() sasl.Mechanism {
	switch each.Mechanism {
	case "PLAIN":
		return plain.Auth{User: each.User, Pass: each.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: each.User, Pass: each.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: each.User, Pass: each.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: each.Token}.AsMechanism()
}
