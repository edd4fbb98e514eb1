package main

import (
	"encoding/base64"
	"time"
)

// A header is a pair of its name and its value in base64, which may be null.
func headerOf(name string, value []byte) [2]*string {
	if value == nil {
		return [2]*string{&name, nil}
	}
	text := base64.StdEncoding.EncodeToString(value)
	return [2]*string{&name, &text}
}

func headerValue(header [2]*string) []byte {
	if header[1] == nil {
		return nil
	}
	value, err := base64.StdEncoding.DecodeString(*header[1])
	if err != nil {
		panic(err)
	}
	return value
}

// What was read; its headers are added to it.
func readRecord(offset int64, at time.Time, key, value []byte) record {
	timestamp := at.UnixMilli()
	return record{Offset: offset, Timestamp: &timestamp, Key: key, Value: value, Headers: [][2]*string{}}
}
