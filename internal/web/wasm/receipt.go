//go:build js

package main

import (
	"bytes"
	"syscall/js"

	"github.com/karat-run/karat"
)

// receipt is an answer's receipt, if one is wanted.
func receipt(m *model, wanted bool) (r *karat.Receipt, text func() (string, error), err error) {
	if !wanted {
		return nil, nil, nil
	}
	r = m.m.NewReceipt()
	return r, func() (string, error) {
		text, err := r.Bytes()
		return string(text), err
	}, nil
}

// verify computes the answer of a receipt again.
func (m *model) verify(args []js.Value) (any, error) {
	r, err := karat.ReadReceipt(bytes.NewReader(bytesOf(argument(args, 0))))
	if err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 1))
	defer end()
	progress := function(argument(args, 1), "onProgress")
	v, err := m.m.Verify(ctx, r, karat.VerifyOptions{Progress: func(done, total int) { progress(done, total) }})
	if err != nil {
		return nil, err
	}
	return struct {
		*karat.Verdict
		Verified bool `json:"verified"`
	}{v, v.Verified()}, nil
}
