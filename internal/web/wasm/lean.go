//go:build js && !full

package main

import "syscall/js"

// moreOf returns nothing: embeddings are the npm package's.
func moreOf(*model) map[string]func([]js.Value) (any, error) { return nil }
