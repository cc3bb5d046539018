//go:build js && !full

package main

import (
	"errors"
	"syscall/js"

	"github.com/karat-run/karat"
)

// moreOf returns nothing: embeddings and receipts are the npm package's.
func moreOf(*model) map[string]func([]js.Value) (any, error) { return nil }

// receipt refuses receipts, for which the page's program has no room.
func receipt(_ *model, wanted bool) (r *karat.Receipt, text func() (string, error), err error) {
	if wanted {
		err = errors.New("the engine of this page gives no receipts: the npm package does")
	}
	return nil, nil, err
}
