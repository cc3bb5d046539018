package karat_test

import (
	"slices"
	"testing"

	"github.com/karat-run/karat"
)

// TestLoadAdapter wants an adapter that came later to give the bits of one of Options, and a request that has begun
// with it to end with it after UnloadAdapter.
func TestLoadAdapter(t *testing.T) {
	path, prompt := peftFolder(t, 0.05), []int{2, 30, 41, 57, 9}
	open := func(all ...karat.Adapter) *karat.Model {
		m, err := karat.Load(t.Context(), demo, karat.Options{Context: 64, Adapters: all})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	said := func(m *karat.Model, between func(), chosen map[string]float64) (rows []float32) {
		s := m.NewSession()
		defer s.Close()
		for token, err := range s.GenerateIDs(t.Context(), prompt, karat.GenerateOptions{MaxTokens: 6, Logits: true,
			Sampling: &karat.Sampling{}, Adapters: chosen}) {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, token.Logits...)
			if between != nil {
				between()
				between = nil
			}
		}
		return rows
	}
	want := said(open(karat.Adapter{Name: "a", Path: path}), nil, map[string]float64{"a": 1})
	m := open()
	plain := said(m, nil, nil)
	if slices.Equal(plain, want) {
		t.Fatal("the adapter changes nothing")
	}
	if _, err := m.LoadAdapter(t.Context(), karat.Adapter{Name: "a", Path: path}); err != nil {
		t.Fatal(err)
	}
	got := said(m, func() {
		if err := m.UnloadAdapter("a"); err != nil {
			t.Error(err)
		}
	}, map[string]float64{"a": 1})
	if !slices.Equal(got, want) {
		t.Error("the adapter of LoadAdapter gives other bits")
	}
	if !slices.Equal(said(m, nil, nil), plain) {
		t.Error("without an adapter the bits have changed")
	}
	for _, err := range m.GenerateIDs(t.Context(), prompt, karat.GenerateOptions{Adapters: map[string]float64{"a": 1}}) {
		if err == nil {
			t.Error("an unloaded adapter is still chosen")
		}
	}
	if m.UnloadAdapter("a") == nil {
		t.Error("an adapter is unloaded twice")
	}
	for _, a := range []karat.Adapter{{Path: path}, {Name: "a", Path: path, Scale: 1}, {Name: "a", Path: "nowhere"}} {
		if _, err := m.LoadAdapter(t.Context(), a); err == nil {
			t.Errorf("%+v: no error", a)
		}
	}
}

// TestWatchCache wants each page told after the page before it, with its tokens and what it is of, and the end of all.
func TestWatchCache(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	there := map[[32]byte]karat.CachePage{}
	gone := 0
	m.WatchCache(func(p karat.CachePage) {
		had, known := there[p.Hash]
		switch {
		case p.Tokens == nil && !known, p.Tokens != nil && known:
			t.Errorf("page %x comes or goes twice", p.Hash[:4])
		case p.Tokens == nil:
			if had.Adapter != p.Adapter || had.Of != p.Of {
				t.Errorf("page %x was of %q %q, is of %q %q", p.Hash[:4], had.Adapter, had.Of, p.Adapter, p.Of)
			}
			delete(there, p.Hash)
			gone++
		default:
			if _, ok := there[p.Parent]; !ok && p.Parent != [32]byte{} {
				t.Errorf("page %x comes before its parent", p.Hash[:4])
			}
			p.Tokens = slices.Clone(p.Tokens)
			there[p.Hash] = p
		}
	})
	prompt := make([]int, 200)
	for i := range prompt {
		prompt[i] = 20 + i
	}
	if _, err := m.LoadAdapter(t.Context(), karat.Adapter{Name: "style", Path: peftFolder(t, 0.05)}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []karat.GenerateOptions{{}, {Caller: karat.Caller{Key: "k", PrivateCache: true}},
		{Adapters: map[string]float64{"style": 1}}, {Adapters: map[string]float64{"style": 0.5}}, {}} {
		o.MaxTokens = 1
		for _, err := range m.GenerateIDs(t.Context(), prompt, o) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	of := map[[2]string]int{}
	for _, p := range there {
		of[[2]string{p.Adapter, p.Of}]++
		at := 0
		for x := p; x.Parent != [32]byte{}; x = there[x.Parent] {
			at += 64
		}
		for i, id := range p.Tokens {
			if len(p.Tokens) != 64 || int(id) != 20+at+i {
				t.Fatalf("page at %d has %v", at, p.Tokens)
			}
		}
	}
	var private, half int
	for name, n := range of {
		if n != 3 {
			t.Errorf("%d pages of %q, want 3", n, name)
		}
		if name[1] != "" {
			private++
		}
		if len(name[0]) > 10 {
			half++
		}
	}
	if len(of) != 4 || of[[2]string{}] != 3 || of[[2]string{"style", ""}] != 3 || private != 1 || half != 1 {
		t.Errorf("pages of %v", of)
	}
	m.Close()
	if len(there) > 0 || gone != 12 {
		t.Errorf("after Close %d pages are there, %d have gone", len(there), gone)
	}
}

// TestWatchRenamed wants pages told under the name that requests have for the adapter now.
func TestWatchRenamed(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	name, seen := "", 0
	m.WatchCache(func(p karat.CachePage) {
		if seen++; name != "" && p.Adapter != name {
			t.Errorf("a page of %q, want %q", p.Adapter, name)
		}
	})
	path := peftFolder(t, 0.05)
	for i, as := range []string{"first", "second"} {
		if _, err := m.LoadAdapter(t.Context(), karat.Adapter{Name: as, Path: path}); err != nil {
			t.Fatal(err)
		}
		name = as
		prompt := make([]int, 100)
		for j := range prompt {
			prompt[j] = 20 + 100*i + j
		}
		for _, err := range m.GenerateIDs(t.Context(), prompt, karat.GenerateOptions{MaxTokens: 1,
			Adapters: map[string]float64{as: 1}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := m.UnloadAdapter(as); err != nil {
			t.Fatal(err)
		}
	}
	if name = ""; seen != 2 {
		t.Errorf("%d pages, want 2", seen)
	}
}
