package parquet

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var ask = flag.Bool("oracle", false, "read a file with another library (folder oracle)")

// TestBytes: a file of two numbers and two vectors has the bytes that the format asks for, written down by hand.
func TestBytes(t *testing.T) {
	want := strings.Join([]string{
		"PAR1",
		// PageHeader: data page (0) of 8 bytes, as many compressed; 2 values, PLAIN (0), levels RLE (3)
		"\x15\x00\x15\x10\x15\x10\x2c\x15\x04\x15\x00\x15\x06\x15\x06\x00\x00",
		"\x05\x00\x00\x00\xff\xff\xff\xff",
		// 28 bytes, 3 values
		"\x15\x00\x15\x38\x15\x38\x2c\x15\x06\x15\x00\x15\x06\x15\x06\x00\x00",
		"\x06\x00\x00\x00\x02\x00\x02\x01\x02\x00", // 6 bytes of repetition levels: runs of one 0, one 1, one 0
		"\x02\x00\x00\x00\x06\x01",                 // 2 bytes of definition levels: three times 1
		"\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f",
		"\x15\x02",                      // FileMetaData: version 1
		"\x19\x5c",                      // a list of 5 structs
		"\x48\x06schema\x15\x04\x00",    // with 2 children
		"\x15\x02\x25\x00\x18\x01n\x00", // INT32 (1), required (0)
		"\x35\x00\x18\x01v\x15\x02\x15\x06\x4c\x3c\x00\x00\x00", // 1 child, LIST (3), and the logical type LIST (field 3)
		"\x35\x04\x18\x04list\x15\x02\x00",                      // repeated (2), 1 child
		"\x15\x08\x25\x00\x18\x07element\x00",                   // FLOAT (4), required
		"\x16\x04",                                              // 2 rows
		"\x19\x1c",                                              // 1 group
		"\x19\x2c",                                              // of 2 chunks
		"\x26\x08\x1c\x15\x02\x19\x25\x00\x06\x19\x18\x01n\x15\x00\x16\x04\x16\x32\x16\x32\x26\x08\x00\x00",                    // at 4: 2 values, 25 bytes
		"\x26\x3a\x1c\x15\x08\x19\x25\x00\x06\x19\x38\x01v\x04list\x07element\x15\x00\x16\x06\x16\x5a\x16\x5a\x26\x3a\x00\x00", // at 29: 3 values, 45 bytes
		"\x16\x8c\x01\x16\x04\x00", // 70 bytes, 2 rows
		"\x19\x1c\x18\x01k\x18\x03two\x00",
		"\x00",
		"\x95\x00\x00\x00PAR1",
	}, "")
	var b bytes.Buffer
	w := NewWriter(&b, Column{"n", Int32}, Column{"v", Vector})
	if err := w.Write([]int32{5, -1}, [][]float32{{1, -2}, {0.5}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(map[string]string{"k": "two"}); err != nil || b.String() != want {
		t.Errorf("%v, %d bytes, want %d:\n%q\n%q", err, b.Len(), len(want), b.String(), want)
	}
}

// TestOracle: another library reads what was written.
func TestOracle(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b, Column{"number", Int32}, Column{"text", String}, Column{"vector", Vector})
	long := make([]float32, 1000)
	for i := range long {
		long[i] = float32(i) / 7
	}
	type row struct {
		Number int32     `json:"number"`
		Text   string    `json:"text"`
		Vector []float32 `json:"vector"`
	}
	rows := []row{{-1, "naïve 東京", []float32{1}}, {1 << 30, "", []float32{-1e-30, 3.4e38}}, {0, "a\x00b", long}}
	for _, g := range [][]row{rows[:2], rows[2:]} {
		var numbers []int32
		var texts []string
		var vectors [][]float32
		for _, x := range g {
			numbers, texts, vectors = append(numbers, x.Number), append(texts, x.Text), append(vectors, x.Vector)
		}
		if err := w.Write(numbers, texts, vectors); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(map[string]string{"a": "b"}); err != nil || !strings.HasPrefix(b.String(), magic) || !strings.HasSuffix(b.String(), magic) {
		t.Fatal(err)
	}
	if !*ask {
		return
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "run", ".", path)
	c.Dir, c.Stderr = "oracle", os.Stderr
	out, err := c.Output()
	var got []row
	var groups int
	var notes map[string]string
	if err == nil {
		err = json.Unmarshal(out, &[]any{&got, &groups, &notes})
	}
	if err != nil || groups != 2 || notes["a"] != "b" || !reflect.DeepEqual(got, rows) {
		t.Errorf("%v: %d groups, %v, %.300v", err, groups, notes, got)
	}
}

// failing takes so many bytes.
type failing int

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if *f -= failing(len(b)); *f < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestErrors: rows that do not fit are refused, and what a file cannot take is told at the end, too.
func TestErrors(t *testing.T) {
	for want, columns := range map[string][]any{
		"1 columns, want 2":                       {[]int32{1}},
		"column n: rows of type []string":         {[]string{"a"}, [][]float32{{1}}},
		"column v: rows of type []float32":        {[]int32{1}, []float32{1}},
		"column v: 2 rows, want 1":                {[]int32{1}, [][]float32{{1}, {2}}},
		"column v: row 1 has no elements":         {[]int32{1, 2}, [][]float32{{1}, {}}},
		"column n: a group of 0 rows and 0 bytes": {[]int32{}, [][]float32{}},
	} {
		w := NewWriter(io.Discard, Column{"n", Int32}, Column{"v", Vector})
		if err := w.Write(columns...); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	full := failing(100000)
	w := NewWriter(&full, Column{"v", Vector})
	for range 4 {
		w.Write([][]float32{make([]float32, 10000)})
	}
	if err := w.Close(nil); !errors.Is(err, errFull) {
		t.Error(err)
	}
}
