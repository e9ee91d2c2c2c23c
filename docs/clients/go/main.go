package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"example/mtl-client/mtl"
)

const usage = `usage:
  client ENDPOINT publish RESOURCE WRITER      publish each line of the standard input as a content
  client ENDPOINT read RESOURCE GROUP [COUNT]  print contents, a line each; COUNT contents, or for ever

A publisher that is started again with the same WRITER and the same input continues after the last stored line.
A reader that is started again with the same GROUP continues after the last printed content.
The environment variables MTL_USER and MTL_PASSWORD log in.`

const maxLine = 4 << 20 // the largest content that the broker accepts

func publish(ctx context.Context, options mtl.Options, resource, name string) error {
	writer, err := mtl.OpenWriter(ctx, options, resource, name)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLine+1)
	for line := uint64(1); lines.Scan(); line++ {
		if line <= writer.Last {
			continue
		}
		if err := writer.Send([]byte(lines.Text())); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return writer.Close()
}

func read(ctx context.Context, options mtl.Options, resource, group string, count int) error {
	reader, err := mtl.OpenReader(ctx, options, resource, group)
	if err != nil {
		return err
	}
	for ; count != 0; count-- {
		content, err := reader.Next()
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(append(content.Body, '\n')); err != nil {
			return err
		}
		if err := reader.Confirm(content); err != nil {
			return err
		}
	}
	return reader.Close()
}

func run(arguments []string) error {
	options := mtl.Options{
		User: os.Getenv("MTL_USER"), Password: os.Getenv("MTL_PASSWORD"),
		OnLost: func(err error) { log.Print("again: ", err) },
	}
	ctx := context.Background()
	if len(arguments) == 4 && arguments[1] == "publish" {
		options.Endpoint = arguments[0]
		return publish(ctx, options, arguments[2], arguments[3])
	}
	if (len(arguments) == 4 || len(arguments) == 5) && arguments[1] == "read" {
		options.Endpoint = arguments[0]
		count := -1
		if len(arguments) == 5 {
			var err error
			if count, err = strconv.Atoi(arguments[4]); err != nil {
				return err
			}
		}
		return read(ctx, options, arguments[2], arguments[3], count)
	}
	fmt.Fprintln(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
