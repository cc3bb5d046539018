package karat

import "github.com/karat-run/karat/internal/graph"

// KeepRows sets the maximum bytes of kept rows, and returns the way back.
func KeepRows(n int) (back func()) {
	before := keptRows
	keptRows = n
	return func() { keptRows = before }
}

// Reading returns the number of pictures held as pixels or patches.
func (m *Model) Reading() int { return len(m.eye.reading) }

// Tiles returns the number of tiles with patches among the kept pictures, whose rows are computed.
func (m *Model) Tiles() (n int) {
	for _, s := range m.eye.seen {
		n += len(m.eye.model.Tiles(s.Picture))
	}
	return n
}

// WatchTower calls f in each step of m's tower. No picture has been seen yet.
func (m *Model) WatchTower(f func()) error {
	if err := m.eye.ready(m); err != nil {
		return err
	}
	m.eye.mu.Lock()
	defer m.eye.mu.Unlock()
	tower := m.eye.model
	last := tower.Graph.Result()
	tower.Want, tower.Tap = func(n *graph.Node) bool { return n == last }, func(*graph.Node, []float32) { f() }
	return nil
}
