//go:build !linux

package mmap

func drop([]byte) {}

func hugePages([]byte) {}

func smallPages([]byte) {}

func populate([]byte) bool { return false }
